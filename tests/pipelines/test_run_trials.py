"""Trials by Ray Tune on a real cluster: to their ends, through lost processes, and over attempts, each run once."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from search_world import BASE, search_context

from pipelines import storage
from pipelines.errors import JobCancelled
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.main import describe_failure
from pipelines.searching import tune_searcher
from pipelines.searching.ledger import Ledger
from pipelines.searching.measures import CorruptionMeasure, Measure, TrainingMeasure
from pipelines.searching.run_trials import run_trials
from pipelines.searching.suggest import proposer_of
from pipelines.specs.documents import CONTROL_FILE, Control
from pipelines.training.curve import PROGRESS_FILE

pytestmark = pytest.mark.usefixtures("ray_cluster")

# Of larger batches than those of `search_world`: a process is to be lost, or told to stop, in the midst of a trial.
TRAINING = {"num_train_steps": 40, "sequence_length": 32, "log_interval_steps": 5}
RULES: dict[str, Any] = {
    "base": {**BASE, "training": TRAINING},
    "space": {"optimizer.learning_rate": {"type": "log_uniform", "low": 1e-4, "high": 1e-2}},
    "objective": {"type": "training_metric", "metric": "generator_loss"},
    "budget": {"steps": 36},
    "num_trials": 5,
    "searcher": {"type": "random"},
}


HELD_OUT = TrainingMeasure("generator_loss")


class Search:
    """A search on a small corpus, run by as many attempts as a test makes."""

    def __init__(self, folder: Path, at_a_time: int = 1, **fields: Any) -> None:
        compute = {"max_concurrent_trials": at_a_time}  # each place costs the start of a process
        self.context = search_context(folder, **{**RULES, "compute": compute, **fields})
        self.directory = JobDirectory(self.context.job_uri)
        self.num_attempts = 0

    def attempt(self, on_step: Callable[[], None] = lambda: None, measure: Measure = HELD_OUT) -> Ledger:
        self.num_attempts += 1
        ledger = Ledger(self.directory, "generator_loss", "min")
        run_trials(
            self.context,
            measure,
            ledger,
            proposer_of(self.context.search, "min"),
            ProgressReporter(self.directory),
            name=f"trials-a{self.num_attempts}",
            on_step=on_step,
        )
        return ledger

    def scored(self) -> dict[str, int]:
        """Every score that was put down, and when."""
        found = Path(self.directory.uri, "trials").glob("*/scored_*.json")
        return {f"{path.parent.name}/{path.name}": path.stat().st_mtime_ns for path in found}


class DriverDiedError(Exception):
    """Stands for whatever ends the driver: nothing of it is left but its files."""


@pytest.mark.parametrize("at_a_time", [1, 2])
def test_every_trial_comes_to_an_end_and_some_are_stopped_early(tmp_path: Path, at_a_time: int) -> None:
    search = Search(tmp_path, at_a_time=at_a_time)
    trials = search.attempt().trials
    assert [one.number for one in trials] == list(range(5))
    states = {one.state for one in trials}
    # Of two at a time either may be scored first, and where each is better than those before it none is stopped.
    assert states == {"COMPLETED", "STOPPED"} or (at_a_time == 2 and states == {"COMPLETED"})
    for one in trials:
        assert [rung.step for rung in one.rungs] == [4, 12, 36][: len(one.rungs)]
        assert one.score == one.rungs[-1].score
        assert one.state == ("COMPLETED" if one.step == 36 else "STOPPED")
        assert one.flops == one.rungs[-1].flops > 0
    assert not Path(search.directory.uri, "ray_tune").exists()


def test_an_attempt_after_the_last_runs_nothing_again(tmp_path: Path) -> None:
    search = Search(tmp_path, num_trials=3)
    first = search.attempt().trials
    scored = search.scored()
    assert search.attempt().trials == first
    assert search.scored() == scored


def test_what_a_dead_driver_had_begun_goes_on_and_nothing_is_scored_twice(tmp_path: Path) -> None:
    search = Search(tmp_path, at_a_time=2)

    def die() -> None:
        if len(search.scored()) >= 3:
            raise DriverDiedError

    with pytest.raises(DriverDiedError):
        search.attempt(die)
    before = Ledger(search.directory, "generator_loss", "min").trials
    scored = search.scored()
    trials = search.attempt().trials
    assert [one.point for one in trials[: len(before)]] == [one.point for one in before]
    assert len(trials) == 5
    assert {one.state for one in trials} <= {"COMPLETED", "STOPPED"}
    after = search.scored()
    assert {name: after[name] for name in scored} == scored


def test_a_trial_whose_process_is_killed_goes_on_from_its_last_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the last, so that Ray Tune has nothing to run until the pause is over."""
    monkeypatch.setattr(tune_searcher, "PAUSE_SECONDS", 3.0)
    search = Search(tmp_path, num_trials=2, scheduler={"type": "median_stopping", "num_rungs": 6, "min_trials": 9})
    killed: list[int] = []

    def kill() -> None:
        if not killed and len(search.scored()) >= 7:
            # None is found while Ray writes a process's title anew: then at the next step.
            for actor in filter(_is_trial, psutil.process_iter(["cmdline"])):
                killed.append(actor.pid)
                os.kill(actor.pid, signal.SIGKILL)
                break

    trials = search.attempt(kill).trials
    assert killed
    assert [one.state for one in trials] == ["COMPLETED", "COMPLETED"]
    assert all(len(one.rungs) == 6 for one in trials)


def test_where_every_trial_is_lost_for_the_storage_another_attempt_may_fare_better(tmp_path: Path) -> None:
    base = {**RULES["base"], "training": {**TRAINING, "max_failures": 0}}
    search = Search(tmp_path, base=base, num_trials=2)
    with pytest.raises(ConnectionError, match="no trial came to a score, 2 were lost; trial 0: StorageError") as caught:
        search.attempt(measure=CorruptionMeasure(str(tmp_path / "nowhere.npz"), "auc"))
    assert describe_failure(caught.value, "train", search.directory.storage_uri).can_retry
    assert {one.state for one in search.attempt().trials} <= {"COMPLETED", "STOPPED"}


def test_a_search_that_is_cancelled_stops_and_goes_on_later(tmp_path: Path) -> None:
    # Long enough to be under way still when the wish is read, which is looked for every two seconds.
    search = Search(tmp_path, num_trials=1, budget={"steps": 1800}, scheduler={"type": "none", "num_rungs": 9})
    control = Path(search.directory.uri, CONTROL_FILE)

    def cancel() -> None:
        if search.scored():
            control.write_text(Control(action="cancel").model_dump_json())

    with pytest.raises(JobCancelled):
        search.attempt(cancel)
    assert any(one.state == "RUNNING" for one in Ledger(search.directory, "generator_loss", "min").trials)
    scored = search.scored()
    control.unlink()
    trials = search.attempt().trials
    assert [one.state for one in trials] == ["COMPLETED"]
    assert {name: search.scored()[name] for name in scored} == scored


def test_a_space_of_few_points_ends_when_they_are_tried(tmp_path: Path) -> None:
    space = {"optimizer.learning_rate": {"type": "choice", "values": [1e-3, 2e-3]}}
    trials = Search(tmp_path, space=space, num_trials=6, scheduler={"type": "none"}).attempt().trials
    assert sorted(float(str(one.point["optimizer.learning_rate"])) for one in trials) == [1e-3, 2e-3]


def test_an_invalid_point_is_reported_and_the_others_are_tried(tmp_path: Path) -> None:
    space = {"model.generator_size_ratio": {"type": "grid", "values": [0.1, 0.5]}}
    search = Search(
        tmp_path,
        space=space,
        num_trials=None,
        searcher={"type": "grid"},
        scheduler={"type": "none"},
        objective={"type": "fixed_corruption"},
        budget={"steps": 60},
    )
    trials = search.attempt().trials
    assert [one.state for one in trials] == ["INVALID", "COMPLETED"]
    assert "generator_size_ratio" in trials[0].reason


@pytest.mark.slow
def test_a_trial_of_two_workers_trains_what_one_worker_does(tmp_path: Path) -> None:
    """And says of itself when it works, in whichever process, and when it waits for one that does."""
    compute = {"num_workers": 2, "cpus_per_worker": 0.5}
    scores, signs = [], []
    for number, changed in enumerate((RULES["base"], {**RULES["base"], "compute": compute})):
        folder = tmp_path / str(number)
        folder.mkdir()
        space = {"optimizer.learning_rate": {"type": "grid", "values": [1e-3]}}
        fields: dict[str, Any] = {"searcher": {"type": "grid"}, "num_trials": None, "budget": {"steps": 12}}
        with _signs(folder) as seen:
            (trial,) = Search(folder, base=changed, space=space, **fields).attempt().trials
        assert trial.state == "COMPLETED"
        assert len(trial.rungs) == 3
        scores.append(trial.score)
        signs.append(seen)
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)
    of_one, of_two = signs
    assert {doing for doing, is_waiting in of_one if is_waiting} <= {"waiting for a process"}
    assert ("training, step", False) in of_two
    assert ("scoring step in a worker's place", False) in of_two
    of_host = {"going on to step", "scoring step"}
    assert of_host <= {doing for doing, is_waiting in of_two if is_waiting}
    assert not of_host & {doing for doing, is_waiting in of_two if not is_waiting}


@contextlib.contextmanager
def _signs(folder: Path) -> Iterator[set[tuple[str, bool]]]:
    """What trials say of themselves meanwhile, without the numbers, and whether they wait."""
    seen: set[tuple[str, bool]] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            for path in folder.rglob(PROGRESS_FILE):
                sign = storage.read_json(str(path))
                if "doing" in sign:  # the job has a file of that name too
                    seen.add((re.sub(r" \d+", "", sign["doing"]), sign["is_waiting"]))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def _is_trial(process: psutil.Process) -> bool:
    command = process.info["cmdline"] or [""]
    return command[0].startswith("ray::") and "Trainable" in command[0]
