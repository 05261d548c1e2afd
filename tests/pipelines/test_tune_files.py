"""Ray Tune's own files: a fault with them is the storage's, and another attempt may fare better. No Ray runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from search_world import rung_context

from pipelines.errors import StorageError
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.main import describe_failure
from pipelines.searching.ledger import Ledger
from pipelines.searching.measures import TrainingMeasure
from pipelines.searching.run_trials import run_trials
from pipelines.searching.suggest import proposer_of


class FaultyTuner:
    """Ray Tune, as far as it comes."""

    def __init__(self, faults: dict[str, Exception]) -> None:
        self.faults = faults

    def __call__(self, *_: object, **__: object) -> FaultyTuner:
        self._meet("building")
        return self

    def fit(self) -> None:
        self._meet("fitting")

    def _meet(self, where: str) -> None:
        if where in self.faults:
            raise self.faults[where]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Trials of a search in which Ray Tune meets with faults."""
    context = rung_context(tmp_path)
    directory = JobDirectory(context.job_uri)

    def made(**faults: Exception) -> None:
        for name in ("with_parameters", "with_resources"):
            monkeypatch.setattr(tune, name, lambda actor, *_, **__: actor)
        monkeypatch.setattr(tune, "Tuner", FaultyTuner(faults))
        ledger = Ledger(directory, "generator_loss", "min")
        proposer = proposer_of(context.search, "min")
        run_trials(
            context, TrainingMeasure("generator_loss"), ledger, proposer, ProgressReporter(directory), name="trials-a1"
        )

    return made


@pytest.mark.parametrize("where", ["building", "fitting"])
def test_a_full_disk_is_a_fault_of_the_storage(run: Callable[..., None], where: str) -> None:
    faults: dict[str, Any] = {where: OSError(28, "No space left on device", "/tmp/ray/tuner.pkl")}
    with pytest.raises(StorageError, match=r"ray_tune: Ray Tune's own files: .*No space left on device") as caught:
        run(**faults)
    assert describe_failure(caught.value, "train", "/somewhere").can_retry


@pytest.mark.parametrize("error", [TimeoutError("trial 0 said nothing"), ConnectionError("no trial came to a score")])
def test_what_is_no_fault_of_files_stays_what_it_is(run: Callable[..., None], error: Exception) -> None:
    """In Python a time-out is an `OSError` too."""
    with pytest.raises(type(error)) as caught:
        run(fitting=error)
    assert caught.value is error


def test_what_nobody_restores_is_hardly_ever_written(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNE_GLOBAL_CHECKPOINT_S", raising=False)
    run()
    assert float(os.environ["TUNE_GLOBAL_CHECKPOINT_S"]) >= 1e6
