"""Processes that keep a log, to be started by `multiprocessing` and killed."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from pathlib import Path

from pipelines.joblogs import keeper
from pipelines.joblogs.context import LogContext, keep_logs
from pipelines.joblogs.keeper import LogKeeper


def speak(job_uri: str, attempt: int, source: str) -> None:
    """Log, warn, print, and end by an exception."""
    log = logging.getLogger("pipelines.speaker")
    log.setLevel(logging.INFO)
    with keep_logs(LogContext(job_uri, attempt), source):
        log.info("step", extra={"step": 7, "loss": 1.5})
        logging.getLogger("somebody.else").warning("old %s", "habits")
        warnings.warn("soon to go", FutureWarning, stacklevel=1)
        print("printed", flush=True)
        print("\rhalf\rwhole", file=sys.stderr)
        raise ValueError("the end of it")


def speak_for_ever(job_uri: str, source: str, flag: str) -> None:
    """Log a hundred lines, wait until they must be in storage, log one more, say so, and go on until killed."""
    keeper.FLUSH_SECONDS = 0.1
    one = LogKeeper(f"{job_uri}/logs/attempt-1/{source}", source, 1 << 20, flush_seconds=0.1)
    one.start()
    for number in range(100):
        one.add("info", "speaker", f"line {number}")
    folder = Path(job_uri) / "logs" / "attempt-1" / source
    while not any(b"line 99" in part.read_bytes() for part in folder.glob("part-*")):
        time.sleep(0.02)
    Path(flag).write_text("ready")
    time.sleep(600)


def chatter(job_uri: str, source: str, num_lines: int) -> None:
    """Log some lines and end well."""
    one = LogKeeper(f"{job_uri}/logs/attempt-1/{source}", source, 1 << 20, flush_seconds=0.05)
    one.start()
    for number in range(num_lines):
        one.add("warning" if number % 10 == 0 else "info", "chatter", f"{source} says {number}", {"n": number})
    one.close()
