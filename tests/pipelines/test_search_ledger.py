"""The list of a search's trials: what is put down of them, what the next attempt finds, and who is best."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import pytest
from training_task import make_task

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.searching.keep import CheckpointSweeper
from pipelines.searching.ledger import Ledger
from pipelines.searching.trial import FOLDER, RungResult, Trial
from pipelines.specs.space import Point
from pipelines.specs.trial_documents import TRIALS_FILE, TrialList, TrialState, rank
from pipelines.training.task import TrainingTask

POINT: Point = {"objective.discriminator_weight": 10.0, "model.sharing": "all"}


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    return JobDirectory(str(tmp_path / "jobs" / "search-1"))


@pytest.fixture
def task(tmp_path: Path) -> TrainingTask:
    """Of 20 steps."""
    return make_task(tmp_path, "training.seed=7")


def ledger_in(directory: JobDirectory, mode: Literal["max", "min"] = "max") -> Ledger:
    return Ledger(directory, "probe_mean", mode)


def trial_of(task: TrainingTask, folder: str = "t") -> Trial:
    return Trial(task, f"somewhere/{folder}", (5, 10, 20))


def rung(step: int, score: float | None, **fields: object) -> RungResult:
    given = {"tokens": 100 * step, "flops": 1e6 * step, "figures": {}, "losses": (), "reason": ""}
    seconds = {"train_seconds": 2.0, "score_seconds": 0.5}
    return RungResult(step=step, score=score, **{**given, **seconds, **fields})  # type: ignore[arg-type]


def put_down(
    ledger: Ledger, task: TrainingTask, *scores: float | None, state: TrialState = "STOPPED", folder: str = ""
) -> int:
    """A trial that has ended; its number."""
    number = ledger.add({}, trial_of(task, folder or f"t{len(ledger.trials)}")).number
    steps = (5, 10, 20)
    if scores:
        ledger.reached(number, [rung(step, score) for step, score in zip(steps, scores, strict=False)])
    ledger.ended(number, state)
    return number


def test_a_trial_is_put_down_before_it_starts(directory: JobDirectory, task: TrainingTask) -> None:
    summary = ledger_in(directory).add(POINT, trial_of(task, "abc"))
    written = TrialList.model_validate(storage.read_json(directory.path(TRIALS_FILE)))
    assert written.trials == (summary,)
    assert (written.metric, written.mode) == ("probe_mean", "max")
    assert (summary.number, summary.state, summary.point, summary.folder) == (0, "RUNNING", dict(POINT), "abc")
    assert (summary.seed, summary.num_train_steps, summary.is_final) == (7, 20, False)


def test_trials_are_numbered_in_the_order_of_their_points(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    ledger.add({}, trial_of(task))
    ledger.add_invalid(POINT, "hidden_size must be even, got 3")
    ledger.add(POINT, trial_of(task), is_final=True)
    assert [one.number for one in ledger.trials] == [0, 1, 2]
    assert [one.state for one in ledger.trials] == ["RUNNING", "INVALID", "RUNNING"]
    assert ledger[1].reason == "hidden_size must be even, got 3"


def test_what_a_trial_has_reached_adds_up_over_its_rungs(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    ledger.add(POINT, trial_of(task))
    curve = ((4, {"generator_loss": 3.0, "mfu": 0.1}), (5, {"generator_loss": 2.0, "mfu": 0.1}))
    ledger.reached(0, [rung(5, 0.5, figures={"auc": 0.5}, losses=curve), rung(10, 0.75)])
    found = ledger[0]
    assert (found.score, found.step, found.tokens, found.flops) == (0.75, 10, 1000, 1e7)
    assert (found.train_seconds, found.score_seconds) == (4.0, 1.0)
    assert [(one.step, one.score, one.figures) for one in found.rungs] == [(5, 0.5, {"auc": 0.5}), (10, 0.75, {})]
    assert [one.losses for one in found.rungs] == [{"generator_loss": 2.0}, {}]
    assert found.state == "RUNNING"


def test_a_diverged_trial_keeps_the_score_it_had_and_says_why(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    ledger.add(POINT, trial_of(task))
    ledger.reached(0, [rung(5, 0.5), rung(8, None, reason="the loss was not finite at step 8")])
    ledger.ended(0, "DIVERGED")
    assert (ledger[0].score, ledger[0].step) == (0.5, 8)
    assert (ledger[0].state, ledger[0].reason) == ("DIVERGED", "the loss was not finite at step 8")


def test_the_next_attempt_finds_what_ended_and_what_ran(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    put_down(ledger, task, 0.5, 0.6, 0.7, state="COMPLETED")
    ledger.add_invalid(POINT, "no")
    ledger.ended(ledger.add({}, trial_of(task)).number, "FAILED", "its process was lost")
    ledger.add(POINT, trial_of(task, "running"), is_final=True)
    ledger.write(now=True)
    again = ledger_in(directory)
    assert again.trials == ledger.trials
    assert again.add({}, trial_of(task)).number == 4


def test_a_long_reason_is_cut(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    ledger.add_invalid({}, "x" * 5000)
    ledger.ended(ledger.add({}, trial_of(task)).number, "FAILED", "y" * 5000)
    assert [one.reason for one in ledger.trials] == ["x" * 1000, "y" * 1000]


def test_counts_leave_out_the_final_round(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    put_down(ledger, task, state="COMPLETED")
    put_down(ledger, task, state="STOPPED")
    put_down(ledger, task, state="STOPPED")
    ledger.add({}, trial_of(task), is_final=True)
    assert ledger.counts() == {"COMPLETED": 1, "STOPPED": 2}


@pytest.mark.parametrize(("mode", "expected"), [("max", [2, 0, 1]), ("min", [1, 0, 2])])
def test_of_trials_that_came_as_far_the_better_score_is_first(
    directory: JobDirectory, task: TrainingTask, mode: Literal["max", "min"], expected: list[int]
) -> None:
    ledger = ledger_in(directory, mode)
    for score in (0.5, 0.4, 0.6):
        put_down(ledger, task, 0.0, 0.0, score, state="COMPLETED")
    assert [one.number for one in ledger.best(3)] == expected
    assert [one.number for one in ledger.best(1)] == expected[:1]


@pytest.mark.parametrize(("mode", "stopped", "completed"), [("max", 0.9, 0.2), ("min", 0.1, 0.8)])
def test_a_trial_that_came_further_is_better_whatever_its_score(
    directory: JobDirectory, task: TrainingTask, mode: Literal["max", "min"], stopped: float, completed: float
) -> None:
    ledger = ledger_in(directory, mode)
    early = put_down(ledger, task, stopped)
    late = put_down(ledger, task, stopped, stopped, completed, state="COMPLETED")
    assert [one.number for one in ledger.best(2)] == [late, early]


def test_equal_scores_go_by_number(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    for _ in range(3):
        put_down(ledger, task, 0.5)
    assert [one.number for one in ledger.best(10)] == [0, 1, 2]


def test_the_best_are_of_the_search_and_have_a_score(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    put_down(ledger, task, None, state="DIVERGED")
    ledger.add_invalid({}, "no")
    number = put_down(ledger, task, 0.1)
    final = ledger.add({}, trial_of(task), is_final=True).number
    ledger.reached(final, [rung(20, 0.9)])
    assert [one.number for one in ledger.best(10)] == [number]


def test_a_trial_that_diverged_is_none_of_the_best(directory: JobDirectory, task: TrainingTask) -> None:
    """Trained once more from the start, as the winner is, it would only diverge again: it is not among the best."""
    ledger = ledger_in(directory)
    diverged = ledger.add({}, trial_of(task, "diverged")).number
    ledger.reached(diverged, [rung(5, 0.2), rung(9, None, reason="the loss was not finite at step 9")])
    ledger.ended(diverged, "DIVERGED")
    stopped = put_down(ledger, task, 0.8)
    assert [one.number for one in ledger.best(2)] == [stopped]


def test_a_trial_that_failed_on_its_way_is_none_of_the_best(directory: JobDirectory, task: TrainingTask) -> None:
    """It came further than another, with a better score, and there is no network of it."""
    ledger = ledger_in(directory)
    failed = ledger.add({}, trial_of(task, "failed")).number
    ledger.reached(failed, [rung(5, 0.9), rung(10, 0.9)])
    ledger.ended(failed, "FAILED", "its process was lost")
    stopped = put_down(ledger, task, 0.1)
    assert [one.number for one in ledger.best(2)] == [stopped]


def test_trials_at_one_rung_came_as_far_though_their_steps_are_rounded(directory: JobDirectory, tmp_path: Path) -> None:
    """A budget in FLOPs gives trials of other sizes other steps: a ninth of 20 is step 3, of 18 step 2."""
    ledger = ledger_in(directory)
    for num_train_steps, step, score in ((20, 3, 0.2), (18, 2, 0.8)):
        task = make_task(tmp_path, f"training.num_train_steps={num_train_steps}")
        number = ledger.add({}, Trial(task, f"somewhere/{num_train_steps}", (step, num_train_steps))).number
        ledger.reached(number, [rung(step, score)])
        ledger.ended(number, "STOPPED")
    assert [one.score for one in ledger.best(2)] == [0.8, 0.2]


def test_without_rungs_trials_are_shorter_and_else_the_same(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    put_down(ledger, task, 0.5, 0.6)
    (short,) = ledger.without_rungs(ledger.trials)
    assert short.rungs == ()
    assert short.model_copy(update={"rungs": ledger[0].rungs}) == ledger[0]


def test_what_is_noted_is_written_when_it_is_time(
    directory: JobDirectory, task: TrainingTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_in(directory)
    ledger.add({}, trial_of(task))
    ledger._next_write = 0.0
    ledger.reached(0, [rung(5, 0.5)])
    assert ledger_in(directory)[0].score is None, "it was noted and not written"
    monkeypatch.setattr("pipelines.searching.ledger.WRITE_SHARE", 1e-12)  # not within the next thousand hours
    ledger.write()
    assert ledger_in(directory)[0].score == 0.5
    ledger.ended(0, "STOPPED")
    ledger.write()
    assert ledger_in(directory)[0].state == "RUNNING"
    ledger.write(now=True)
    assert ledger_in(directory)[0].state == "STOPPED"


def test_a_trial_costs_no_write_of_all_others(
    directory: JobDirectory, task: TrainingTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is put down all the same: another attempt finds every one that was acknowledged, in its place."""
    monkeypatch.setattr("pipelines.searching.ledger.WRITE_SHARE", 1e-12)  # the next time in a thousand hours
    ledger = ledger_in(directory)
    for number in range(50):
        ledger.add({}, trial_of(task, f"t{number}"))
    ledger.add_invalid({}, "no")
    before = Path(directory.path(TRIALS_FILE)).stat().st_mtime_ns
    sizes = []
    for number in range(51, 55):
        ledger.add({}, trial_of(task, f"t{number}"))
        assert [one.folder for one in ledger_in(directory).trials[51:]] == [f"t{n}" for n in range(51, number + 1)]
        sizes.append(len(storage.read_json(directory.path(TRIALS_FILE))["trials"]))
    assert Path(directory.path(TRIALS_FILE)).stat().st_mtime_ns == before
    assert sizes == [1] * 4
    again = ledger_in(directory)
    assert again.trials == ledger.trials
    assert again.is_behind, "the list lacks them still"
    again.write(now=True)
    assert len(storage.read_json(directory.path(TRIALS_FILE))["trials"]) == 55
    again.add({}, trial_of(task, "last"))
    assert ledger_in(directory).trials == again.trials


def test_what_the_list_has_already_is_not_taken_from_beside_it(directory: JobDirectory, task: TrainingTask) -> None:
    """Trials that were new once have gone on since."""
    ledger = ledger_in(directory)
    ledger.add({}, trial_of(task))
    ledger._next_write = math.inf
    ledger.add({}, trial_of(task, "new"))
    ledger.ended(1, "STOPPED")
    ledger.write(now=True)
    again = ledger_in(directory)
    assert [one.state for one in again.trials] == ["RUNNING", "STOPPED"]
    assert not again.is_behind


def test_a_list_without_news_is_not_written(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    ledger.add({}, trial_of(task))
    Path(directory.path(TRIALS_FILE)).unlink()
    ledger.write(now=True)
    assert not storage.exists(directory.path(TRIALS_FILE))


def test_a_trial_that_had_failed_runs_again_without_its_reason(directory: JobDirectory, task: TrainingTask) -> None:
    ledger = ledger_in(directory)
    ledger.add({}, trial_of(task))
    ledger.ended(0, "FAILED", "its process was lost")
    ledger.begins_again(0)
    assert (ledger[0].state, ledger[0].reason) == ("RUNNING", "")


def test_checkpoints_are_kept_of_what_runs_and_of_the_best_that_ran_to_their_ends(
    directory: JobDirectory, task: TrainingTask
) -> None:
    ledger = ledger_in(directory)
    put_down(ledger, task, 0.5, 0.5, 0.5, state="COMPLETED", folder="worse")
    put_down(ledger, task, 0.5, 0.5, 0.9, state="COMPLETED", folder="best")
    put_down(ledger, task, 0.5, 0.95, folder="stopped")
    put_down(ledger, task, None, state="DIVERGED", folder="diverged")
    ledger.add({}, trial_of(task, "running"))
    ledger.add({}, trial_of(task, "final"), is_final=True)
    ledger.ended(5, "COMPLETED")
    folders = ("worse", "best", "stopped", "diverged", "running", "final")
    for folder in folders:
        storage.write_bytes(directory.path(FOLDER, folder, "checkpoints", "weights"), b"w")
        storage.write_bytes(directory.path(FOLDER, folder, "ray_train", "a1", "state"), b"s")
        storage.write_bytes(directory.path(FOLDER, folder, "probe", "step_00000005", "encoder.safetensors"), b"w")
        storage.write_bytes(directory.path(FOLDER, folder, "scored_00000005.json"), b"{}")
    sweeper = CheckpointSweeper(ledger, directory.uri, 1)
    sweeper.sweep()
    assert all(storage.exists(directory.path(FOLDER, one, "checkpoints", "weights")) for one in folders)
    ledger.write(now=True)  # what is not written the next attempt would train again
    sweeper.sweep()
    left = [one for one in folders if storage.exists(directory.path(FOLDER, one, "checkpoints", "weights"))]
    for name in ("ray_train", "probe"):
        assert left == [one for one in folders if storage.exists(directory.path(FOLDER, one, name))]
    assert left == ["best", "running", "final"]
    sweeper.sweep_all()
    assert not any(storage.exists(directory.path(FOLDER, one, "checkpoints", "weights")) for one in folders)
    assert all(storage.exists(directory.path(FOLDER, one, "scored_00000005.json")) for one in folders)


def test_all_trials_in_order_are_finals_and_finishers_then_the_stopped_then_what_is_lost(
    directory: JobDirectory, task: TrainingTask
) -> None:
    """A training of the final round is scored once, at its end, and came further than what was stopped at a second
    rung; what diverged after two rungs left nothing to take.
    """
    ledger = ledger_in(directory)
    unscored = put_down(ledger, task, state="FAILED")
    diverged = put_down(ledger, task, 0.9, 0.9, None, state="DIVERGED")
    failed = put_down(ledger, task, 0.95, state="FAILED")
    stopped = put_down(ledger, task, 0.4, 0.5)
    finished = put_down(ledger, task, 0.4, 0.5, 0.6, state="COMPLETED")
    final = ledger.add({}, trial_of(task, "final"), is_final=True).number
    ledger.reached(final, [rung(20, 0.7)])
    ledger.ended(final, "COMPLETED")
    ranked = sorted(ledger.trials, key=lambda one: rank(one, "max"))
    assert [one.number for one in ranked] == [final, finished, stopped, diverged, failed, unscored]
