"""Whoever writes what followers wait for: in a process of its own, so that it has no part in how they read."""

from __future__ import annotations

import json
import multiprocessing
import re
import time
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from load_rows import FOLLOWED_ID

from pipelines.joblogs.lines import encode_line
from pipelines.joblogs.parts import PartWriter
from service.ledger.database import make_engine
from service.ledger.store import SqlJobStore

_CONTEXT = multiprocessing.get_context("spawn")
_LINES_A_PART = 20
_LOG_LINE = re.compile(r"line (\d+) of the log")
FIRST_STEP = 10**6


def events(database_url: str, count: int, per_second: float, home: Path) -> list[float]:
    """Move the progress of the followed job so often, as the reconciler does; when each was committed, in order."""
    return _in_process(_write_events, database_url, count, per_second, home / "written.json")


def log_lines(storage: Path, count: int, per_second: float, home: Path) -> list[float]:
    """Log so many lines, as a process of the job does that writes once a second; when each was in its file."""
    return _in_process(_write_lines, str(storage), count, per_second, home / "written.json")


def step_of(line: str) -> int | None:
    """The number of an event that `events` wrote, from 0."""
    step = json.loads(line.removeprefix("data:")).get("payload", {}).get("step")
    return None if step is None or step < FIRST_STEP else int(step) - FIRST_STEP


def line_number(line: str) -> int | None:
    """The number of a line that `log_lines` wrote, from 0."""
    found = _LOG_LINE.search(line)
    return None if found is None else int(found[1])


def _in_process(write: object, target: str, count: int, per_second: float, into: Path) -> list[float]:
    process = _CONTEXT.Process(target=write, args=(target, count, per_second, into))
    process.start()
    process.join()
    assert process.exitcode == 0, f"the writer ended with exit code {process.exitcode}"
    return list(json.loads(into.read_text()))


def _write_events(database_url: str, count: int, per_second: float, into: Path) -> None:
    engine = make_engine(database_url)
    store, written_at = SqlJobStore(engine), []
    job = store.get(FOLLOWED_ID)
    assert job is not None
    assert job.progress is not None
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        # Without figures each is one event.
        told = {"step": FIRST_STEP + number, "losses": {}, "evaluation": {}, "heartbeat_at": datetime.now(UTC)}
        progress = job.progress.model_copy(update=told)
        store.update(replace(job, progress=progress), progress=progress)
        written_at.append(time.time())
    engine.dispose()
    into.write_text(json.dumps(written_at))


def _write_lines(storage: str, count: int, per_second: float, into: Path) -> None:
    writer = PartWriter(f"{storage}/jobs/{FOLLOWED_ID}/logs/attempt-1/train-0", 8 * 1024 * 1024)
    writer.open()
    written_at: list[float] = []
    began, waiting = time.monotonic(), deque[bytes]()
    for number in range(count):
        said = {"logger": "load", "source": "train-0", "message": f"line {number} of the log", "fields": {}}
        waiting.append(encode_line(time=time.time(), level="info", redact=str, **said))
        if len(waiting) == _LINES_A_PART or number == count - 1:
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            written = len(waiting)
            writer.write(waiting)
            written_at += [time.time()] * written
    into.write_text(json.dumps(written_at))
