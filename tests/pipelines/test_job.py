"""The job's directory, and who reports into it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines import job as job_module
from pipelines.errors import JobCancelled
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.specs.documents import Control, JobResult
from pipelines.specs.presets import PRESETS


@pytest.fixture
def directory(tmp_path: Path, monkeypatch) -> JobDirectory:
    monkeypatch.setattr(job_module, "REPORT_INTERVAL_SECONDS", 0.05)
    return JobDirectory(str(tmp_path / "jobs" / "pt-1"))


def ask_to_cancel(directory: JobDirectory) -> None:
    path = Path(directory.path("control.json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Control(action="cancel").model_dump_json())


def test_a_directory_knows_its_job_and_its_storage(directory: JobDirectory, tmp_path: Path):
    assert (directory.job_id, directory.storage_uri) == ("pt-1", str(tmp_path))


def test_spec_and_result_are_read_as_they_were_written(directory: JobDirectory):
    spec, result = PRESETS["tiny"](), JobResult(state="SUCCEEDED", step=3)
    assert directory.read_result() is None
    directory.write_spec(spec)
    directory.write_result(result)
    assert (directory.read_spec(), directory.read_result()) == (spec, result)


def test_a_reporter_raises_once_the_job_is_asked_to_stop(directory: JobDirectory):
    reporter = ProgressReporter(directory, attempt=1)
    reporter.say("working", 0.5)
    ask_to_cancel(directory)
    time.sleep(0.1)
    with pytest.raises(JobCancelled):
        reporter.say("working on", 0.6)
    progress = directory.read_progress()
    assert progress is not None
    assert progress.message == "working on"


def test_the_heartbeat_goes_on_until_another_process_reports(directory: JobDirectory):
    driver, worker = ProgressReporter(directory, heartbeat=True, attempt=1), ProgressReporter(directory, attempt=1)
    with driver, driver.handing_over():
        driver.update(now=True, message="starting workers")
        first = directory.read_progress()
        wait_until(lambda: directory.read_progress().heartbeat_at > first.heartbeat_at)

        def is_left_alone() -> bool:
            worker.update(now=True, step=7, stage="train")
            time.sleep(0.3)  # several heartbeats, had they gone on
            return directory.read_progress().step == 7

        wait_until(is_left_alone)  # a heartbeat that was on its way may be written after the first word


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def test_a_report_that_cannot_be_read_back_does_not_hide_how_the_training_ended(directory: JobDirectory):
    driver = ProgressReporter(directory, attempt=1)
    driver.stage("train")
    Path(directory.path("progress.json")).write_text("{")
    with pytest.raises(JobCancelled), driver.handing_over():
        raise JobCancelled
    with driver.handing_over():
        pass
