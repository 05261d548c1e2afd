from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_processes import chatter, speak, speak_for_ever

from pipelines.joblogs import keeper as keeping
from pipelines.joblogs.context import LogContext, SwitchedLogs, call_name, current_context, keep_logs
from pipelines.joblogs.keeper import LogKeeper
from pipelines.joblogs.lines import encode_line
from pipelines.joblogs.parts import PartWriter
from pipelines.joblogs.redaction import redactor
from pipelines.specs.log_lines import MAX_LINE_BYTES, Dropped, PartKey, is_source, part_key, source_name

SPAWN = multiprocessing.get_context("spawn")


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """All that lies there, in order."""
    parts = sorted(part_key(path.name) or PartKey(0, "") for path in folder.glob("part-*"))
    text = b"".join((folder / part.file_name).read_bytes() for part in parts)
    return [json.loads(line) for line in text.splitlines()]


def run(function: Callable[..., None], *arguments: object) -> int | None:
    process = SPAWN.Process(target=function, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def raw(number: int, size: int = 100) -> bytes:
    return (f"{number}:".ljust(size - 1, ".") + "\n").encode()


def test_all_that_a_process_says_is_kept(tmp_path: Path) -> None:
    assert run(speak, str(tmp_path), 2, "seed-SST 2") == 1
    kept = lines_of(tmp_path / "logs" / "attempt-2" / "seed-sst-2")
    assert [(line["level"], line["logger"]) for line in kept] == [
        ("info", "pipelines.speaker"),
        ("warning", "somebody.else"),
        ("warning", "warnings"),
        ("info", "stdout"),
        ("info", "stderr"),
        ("error", "uncaught"),
    ]
    assert (kept[0]["message"], kept[0]["fields"]) == ("step", {"step": 7, "loss": 1.5})
    assert kept[1]["message"] == "old habits"
    assert kept[2]["message"] == "FutureWarning: soon to go"
    assert [line["message"] for line in kept[3:5]] == ["printed", "whole"]
    assert kept[-1]["message"].endswith("ValueError: the end of it\n")
    assert {line["source"] for line in kept} == {"seed-sst-2"}


def test_a_killed_process_leaves_what_it_had_said(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    process = SPAWN.Process(target=speak_for_ever, args=(str(tmp_path), "rank-0", str(flag)))
    process.start()
    until(flag.exists)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join(60)
    kept = lines_of(tmp_path / "logs" / "attempt-1" / "rank-0")
    assert [line["message"] for line in kept] == [f"line {number}" for number in range(100)]


def test_a_process_that_is_started_again_goes_on_behind_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(chatter, str(tmp_path), "rank-0", 3) == 0
    folder = tmp_path / "logs" / "attempt-1" / "rank-0"
    assert [line["fields"]["n"] for line in lines_of(folder)] == [0, 1, 2, 0, 1, 2]
    assert sorted(path.name[:11] for path in folder.iterdir()) == ["part-000001", "part-000002"]


def test_a_long_log_keeps_its_head_and_its_tail(tmp_path: Path) -> None:
    writer = PartWriter(str(tmp_path / "a" / "chatty"), 8000)
    assert writer.open()
    writer.write(deque(map(raw, range(1000))))
    folder = tmp_path / "a" / "chatty"
    parts = sorted(folder.glob("part-*"))
    numbers = [int(line.split(b":")[0]) for part in parts for line in part.read_bytes().splitlines()]
    dropped = Dropped.model_validate_json((folder / "dropped.json").read_bytes())
    assert sum(path.stat().st_size for path in parts) <= 8000
    assert numbers[:40] == list(range(40))
    assert numbers[-30:] == list(range(970, 1000))
    assert dropped.lines == 1000 - len(numbers)


def test_the_limit_holds_over_processes(tmp_path: Path) -> None:
    """A worker that is started again and again has no more room than one that is not."""
    for start in range(0, 1000, 50):
        writer = PartWriter(str(tmp_path / "a" / "chatty"), 8000)
        writer.open()
        writer.write(deque(map(raw, range(start, start + 50))))
    folder = tmp_path / "a" / "chatty"
    parts = sorted(folder.glob("part-*"))
    numbers = [int(line.split(b":")[0]) for part in parts for line in part.read_bytes().splitlines()]
    dropped = Dropped.model_validate_json((folder / "dropped.json").read_bytes())
    assert sum(path.stat().st_size for path in parts) <= 8000
    assert numbers[:10] == list(range(10))
    assert numbers[-30:] == list(range(970, 1000))
    assert dropped.lines == 1000 - len(numbers)


def test_a_storage_that_was_away_costs_only_lines_and_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_PENDING_BYTES", 20_000)
    monkeypatch.setattr(keeping, "_LONGEST_PAUSE_SECONDS", 0.05)
    (tmp_path / "logs").write_text("a file where the folder should be")
    folder = tmp_path / "logs" / "attempt-1" / "rank-0"
    keeper = LogKeeper(str(folder), "rank-0", 1 << 20, flush_seconds=0.02)
    keeper.start()
    for number in range(1000):
        keeper.add("info", "test", f"line {number}")
    (tmp_path / "logs").unlink()
    until(lambda: folder.is_dir() and any(folder.glob("part-*")))
    keeper.add("info", "test", "back again")
    keeper.close()
    kept = lines_of(folder)
    lost = sum(line["fields"]["num_lines"] for line in kept if line["message"] == "log_lines_lost")
    said = [line for line in kept if line["logger"] == "test"]
    assert said[-1]["message"] == "back again"
    assert said[-2]["message"] == "line 999"
    assert lost > 0
    assert lost + len(said) >= 1001


def test_an_attempt_of_too_many_sources_keeps_no_further_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.joblogs.parts.MAX_SOURCES", 2)
    for name, expected in (("a", True), ("b", True), ("c", False), ("a", True)):
        writer = PartWriter(str(tmp_path / name), 8000)
        assert writer.open() is expected
        if expected:
            writer.write(deque([raw(1)]))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "message",
    ["x" * 1_000_000, "\x00\x1b[2J" * 100_000, "\udc80bad\udcff", '{"time": "x", "level": 3}', "a\nb\u2028c\r"],
    ids=["long", "controls", "surrogates", "json", "line ends"],
)
def test_a_line_is_one_line_of_bounded_json_whatever_it_says(message: str) -> None:
    fields = {"nan": float("nan"), "deep": [[[[[[message]]]]]], message: object(), "big": 10**400}
    line = encode_line(time=1.0, level="?", logger="l", source="s", message=message, fields=fields, redact=str)
    assert len(line) <= MAX_LINE_BYTES
    assert line.count(b"\n") == 1
    told = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert (told["time"], told["level"]) == ("1970-01-01T00:00:01.000000+00:00", "info")
    assert told["message"][:3] == message[:3].replace("\udc80", "?")


def test_what_cannot_be_logged_does_not_stop_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    log = logging.getLogger("pipelines.test")
    monkeypatch.setattr(logging.getLogger("pipelines"), "propagate", False)  # pytest's own handler minds
    with keep_logs(LogContext(str(tmp_path), 1), "driver", prints=False):
        log.error("%d", "no number", extra={"bad": Bad()})
    kept = lines_of(tmp_path / "logs" / "attempt-1" / "driver")
    assert [line["message"] for line in kept] == ["'%d'"]


def test_secrets_of_the_environment_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t/with+signs")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/etc/token-of-ray")
    with keep_logs(LogContext(str(tmp_path), 1), "driver", prints=False):
        logging.getLogger("pipelines.test").warning(
            "key s3cr3t/with+signs at /etc/token-of-ray",
            extra={"where": {"uri": "https://me:pass1@host/x", "keys": ["s3cr3t/with+signs"]}},
        )
    (line,) = lines_of(tmp_path / "logs" / "attempt-1" / "driver")
    assert line["message"] == "key [redacted] at /etc/token-of-ray"
    assert line["fields"]["where"] == {"uri": "https://[redacted]@host/x", "keys": ["[redacted]"]}


def test_short_words_are_no_secrets() -> None:
    assert redactor({"X_TOKEN": "true", "TOKENIZERS_PARALLELISM": "disabled"})("true disabled") == "true disabled"


def test_names_of_sources_are_segments_of_paths() -> None:
    for text in ("..", "../x", "", "/etc", "Größe", "a" * 500, "trial-3"):
        assert is_source(source_name(text)), text
    assert not any(map(is_source, ("..", ".", "a/b", "A", "", "a" * 81, "a\n")))
    assert source_name("a" * 100 + "1") != source_name("a" * 100 + "2")


def test_processes_started_by_a_process_carry_its_name_except_by_the_driver(tmp_path: Path) -> None:
    assert current_context() is None
    with keep_logs(LogContext(str(tmp_path), 1), "driver", prints=False):
        outer = current_context()
        assert outer is not None
        assert outer.named("rank-0") == "rank-0"
        with keep_logs(outer, "trial-3"):
            inner = current_context()
            assert inner is not None
            assert inner.named("rank-0") == "trial-3-rank-0"
    assert current_context() is None


def test_an_actor_is_one_source_after_another(tmp_path: Path) -> None:
    logs = SwitchedLogs(LogContext(str(tmp_path), 1))
    for name in ("trial-0", "trial-1"):
        logs.switch(name)
        logging.getLogger("pipelines.test").warning("in %s", name)
    logs.close()
    folder = tmp_path / "logs" / "attempt-1"
    assert [lines_of(folder / name)[0]["message"] for name in ("trial-0", "trial-1")] == ["in trial-0", "in trial-1"]


def test_calls_are_named_by_their_argument_or_by_their_function() -> None:
    class Named:
        log_source = "seed-sst-2-1"

    assert call_name(lines_of, Named(), 3) == "seed-sst-2-1"
    assert call_name(lines_of, "x", 3) == "lines-of-3"


def test_words_that_take_their_time_hold_up_no_other_thread(tmp_path: Path) -> None:
    """Whoever's `__str__` it is: other threads log on meanwhile."""
    asked, answered = threading.Event(), threading.Event()

    class Slow:
        def __str__(self) -> str:
            asked.set()
            assert answered.wait(60)
            return "slow"

    keeper = LogKeeper(str(tmp_path / "rank-0"), "rank-0", 1 << 20)
    slow = threading.Thread(target=keeper.add, args=("info", "a", "m", {"value": Slow()}))
    quick = threading.Thread(target=keeper.add, args=("info", "b", "m"))
    slow.start()
    assert asked.wait(60)
    quick.start()
    quick.join(5)
    is_held_up = quick.is_alive()
    answered.set()
    slow.join()
    quick.join()
    assert not is_held_up
