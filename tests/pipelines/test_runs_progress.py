"""What is told of runs that go on, and which of them are taken for hanging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from finetuning_world import seed_task

from pipelines import storage
from pipelines.finetuning import watch
from pipelines.finetuning.progress import RunsProgress
from pipelines.finetuning.run_seed import run_seed
from pipelines.finetuning.seed_task import SeedResult, SeedTask
from pipelines.job import JobDirectory, ProgressReporter


def said(task: SeedTask, **fields: Any) -> None:
    storage.write_json(f"{task.uri}/progress.json", {"began_at": 1.0, "step": 0, "num_steps": 64, **fields})


@pytest.fixture
def task(tmp_path: Path) -> SeedTask:
    return seed_task(tmp_path, num_epochs=4)


@pytest.fixture
def reporter(tmp_path: Path) -> ProgressReporter:
    return ProgressReporter(JobDirectory(str(tmp_path / "jobs" / "ft-1")))


def test_a_run_that_waits_for_room_does_not_hang(
    task: SeedTask, reporter: ProgressReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that an earlier attempt began: it has said nothing new since."""
    monkeypatch.setattr(watch, "STALL_SECONDS", 0.0)
    said(task, step=7)
    runs = RunsProgress([task], {}, reporter)
    for _ in range(3):
        runs.tell(now=True)
    assert reporter.fields["message"] == "0 of 1 runs done, waiting for processes to begin"
    assert reporter.fields["step"] == 7


def test_what_was_said_once_stays_said(task: SeedTask, reporter: ProgressReporter) -> None:
    """A storage may not show a file for a moment."""
    runs = RunsProgress([task], {}, reporter)
    said(task, step=3)
    runs.tell(now=True)
    Path(task.uri, "progress.json").unlink()
    runs.tell(now=True)
    assert reporter.fields["message"].endswith("at step 3 of 64")


def test_a_run_that_falls_silent_hangs_and_is_named(
    task: SeedTask, reporter: ProgressReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = RunsProgress([task], {}, reporter)
    runs.tell(now=True)
    for step in (1, 2):
        said(task, step=step)
        runs.tell(now=True)
    assert reporter.fields["message"].endswith("classification seed 1 at step 2 of 64")
    monkeypatch.setattr(watch, "STALL_SECONDS", 0.0)
    with pytest.raises(TimeoutError, match=r"^classification seed 1 said nothing for 0 s at step 2 of 64$"):
        runs.tell(now=True)


def test_scoring_is_a_sign_of_life(task: SeedTask, reporter: ProgressReporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STALL_SECONDS", 0.0)
    runs = RunsProgress([task], {}, reporter)
    for num_scored in (32, 64, 96):
        said(task, step=64, num_scored=num_scored)
        runs.tell(now=True)
    assert reporter.fields["message"].endswith("at step 64 of 64, 96 rows scored")


def test_a_finished_run_counts_whole_whatever_it_said_last(task: SeedTask, reporter: ProgressReporter) -> None:
    results: dict[int, SeedResult] = {}
    runs = RunsProgress([task], results, reporter)
    results[0] = run_seed(task)
    runs.tell(now=True)
    assert reporter.fields["step"] == reporter.fields["num_train_steps"] == 64
    assert reporter.fields["message"] == "1 of 1 runs done"


def test_a_run_says_when_it_begins_and_what_it_scores(task: SeedTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.finetuning.run_seed.PROGRESS_SECONDS", 0.0)
    written: list[dict[str, Any]] = []
    write = storage.write_json

    def noted(uri: str, document: Any) -> None:
        if uri.endswith("progress.json"):
            written.append(document)
        write(uri, document)

    monkeypatch.setattr(storage, "write_json", noted)
    run_seed(task)
    assert [one["step"] for one in written[:3]] == [0, 1, 2]
    assert written[-1]["step"] == 64
    assert written[-1]["num_scored"] == 64 + 32, "the validation split and the test split"
