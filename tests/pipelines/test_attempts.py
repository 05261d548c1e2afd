"""Attempts of one job: whom a wish is for, and who has the folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import job as job_module
from pipelines.claims import claim
from pipelines.errors import JobCancelled, JobSuperseded
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.main import SUPERSEDED_STATUS, _stopped_state, _write_result, main
from pipelines.specs.documents import Control, JobResult
from pipelines.specs.presets import PRESETS


@pytest.fixture
def directory(tmp_path: Path, monkeypatch) -> JobDirectory:
    monkeypatch.setattr(job_module, "REPORT_INTERVAL_SECONDS", 0.0)
    return JobDirectory(str(tmp_path / "jobs" / "pt-1"))


def wish(directory: JobDirectory, wanted: str, attempt: int | None = None) -> None:
    path = Path(directory.path("control.json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    action, then = ("run" if wanted == "run" else "cancel"), ("pause" if wanted == "pause" else "end")
    path.write_text(Control(action=action, then=then, attempt=attempt).model_dump_json())


@pytest.mark.parametrize("action", ["pause", "cancel"])
def test_a_wish_stops_the_attempt_it_is_for_and_no_later_one(directory: JobDirectory, action: str):
    wish(directory, action, attempt=1)
    with pytest.raises(JobCancelled):
        ProgressReporter(directory, attempt=1).raise_if_cancelled()
    ProgressReporter(directory, attempt=2).raise_if_cancelled()


def test_whoever_does_not_know_its_attempt_asks_the_folder(directory: JobDirectory):
    """As the trials of a search do."""
    claim(directory.uri, 2)
    wish(directory, "pause", attempt=1)
    assert not ProgressReporter(directory).is_cancelled()
    wish(directory, "pause", attempt=2)
    assert ProgressReporter(directory).is_cancelled()


def test_a_wish_for_no_attempt_is_for_all(directory: JobDirectory):
    wish(directory, "cancel")
    assert ProgressReporter(directory, attempt=5).is_cancelled()


@pytest.mark.parametrize(("said", "state"), [("pause", "PAUSED"), ("cancel", "CANCELLED"), ("run", "PAUSED")])
def test_a_job_that_stops_says_what_for_as_it_is_wished_now(directory: JobDirectory, said: str, state: str):
    """Of a pause that was cancelled since, the cancellation counts."""
    wish(directory, "pause", attempt=1)
    wish(directory, said, attempt=1)
    assert _stopped_state(directory, 1) == state


def test_a_wish_in_words_of_a_later_version_ends_no_job(directory: JobDirectory):
    path = Path(directory.path("control.json"))
    path.parent.mkdir(parents=True)
    path.write_text('{"action": "checkpoint_and_sing", "attempt": 1}')
    assert not ProgressReporter(directory, attempt=1).is_cancelled()


def test_a_pause_is_said_in_words_that_earlier_versions_know(directory: JobDirectory):
    """They knew `action` alone, and two words for it."""
    wish(directory, "pause", 1)
    assert json.loads(Path(directory.path("control.json")).read_text())["action"] == "cancel"


def test_a_last_word_is_said_though_nobody_can_tell_who_has_the_folder(directory: JobDirectory):
    mine, _ = claim(directory.uri, 1)
    Path(directory.path("attempt.json")).write_text("{")
    _write_result(mine, directory, JobResult(state="SUCCEEDED", attempt=1))
    assert directory.read_result() == JobResult(state="SUCCEEDED", attempt=1)


def test_a_superseded_attempt_has_no_last_word(directory: JobDirectory):
    first, _ = claim(directory.uri, 1)
    claim(directory.uri, 2)
    with pytest.raises(JobSuperseded):
        _write_result(first, directory, JobResult(state="SUCCEEDED", attempt=1))
    assert directory.read_result() is None


def test_a_wish_that_cannot_be_read_ends_nothing_for_good(directory: JobDirectory):
    path = Path(directory.path("control.json"))
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert _stopped_state(directory, 1) == "PAUSED"


def test_the_later_attempt_has_the_folder(directory: JobDirectory):
    first, _ = claim(directory.uri, 1)
    claim(directory.uri, 2)
    for refused in (first.check, first.hold, first.guard, lambda: claim(directory.uri, 1)):
        with pytest.raises(JobSuperseded, match="attempt 2 has begun"):
            refused()
    with pytest.raises(JobSuperseded):
        ProgressReporter(directory, attempt=1).is_cancelled()
    assert not ProgressReporter(directory, attempt=2).is_cancelled()


def test_an_earlier_attempt_that_began_at_the_same_moment_loses_at_the_next_look(directory: JobDirectory):
    note = Path(directory.path("attempt.json"))
    first, _ = claim(directory.uri, 1)
    written = note.read_bytes()
    second, _ = claim(directory.uri, 2)
    note.write_bytes(written)  # both found the folder free, and the earlier one wrote last
    second.hold()
    with pytest.raises(JobSuperseded):
        first.hold()


def test_a_superseded_attempt_starts_nothing_and_writes_nothing(directory: JobDirectory, tmp_path: Path):
    directory.write_spec(PRESETS["tiny"]())
    claim(directory.uri, 3)
    before = files_of(tmp_path)
    assert main(["--job-uri", directory.uri, "--attempt", "2"]) == SUPERSEDED_STATUS
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("next_attempt", [2, 1])
def test_the_heartbeat_ends_a_process_that_waits_for_its_workers(tmp_path: Path, next_attempt: int):
    """Whatever its main thread does; and nothing of the folder changes any more. One attempt is started twice where Ray
    took it and its head was lost before the service had seen it run.
    """
    code = """
import sys, time
from pipelines import job
job.REPORT_INTERVAL_SECONDS = 0.05
from pipelines.claims import claim
from pipelines.main import _leave
directory = job.JobDirectory(sys.argv[1])
mine, _ = claim(directory.uri, 1)
with job.ProgressReporter(directory, heartbeat=True, on_superseded=_leave, claim=mine, attempt=1):
    print("begun", flush=True)
    time.sleep(120)
"""
    directory = JobDirectory(str(tmp_path / "jobs" / "pt-1"))
    process = subprocess.Popen([sys.executable, "-c", code, directory.uri], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "begun\n"
        mine, _ = claim(directory.uri, next_attempt)
        assert process.wait(timeout=60) == SUPERSEDED_STATUS
    mine.check()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
