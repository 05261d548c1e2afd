"""Trials in this process: from rung to rung to the weights of one go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from search_world import BASE, WEIGHT, rung_context, trained
from training_task import VOCAB_SIZE

from pipelines import storage
from pipelines.errors import CheckpointError, JobCancelled
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.searching.advance import advance
from pipelines.searching.measures import TrainingMeasure
from pipelines.searching.scoring import Score
from pipelines.searching.train_trial import networks_at
from pipelines.searching.trial import RungResult, SearchContext, make_trial
from pipelines.specs.documents import CONTROL_FILE
from pipelines.specs.plan import flops_until
from pipelines.specs.spec_errors import SpecError
from pipelines.training.checkpoint import list_checkpoints, read_state
from pipelines.training.curve import PROGRESS_FILE, CurveTelemetry, read_curve
from pipelines.training.task import TrainingTask
from pipelines.training.telemetry import SilentTelemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

pytestmark = pytest.mark.usefixtures("one_thread")

HELD_OUT = TrainingMeasure("discriminator_loss")


@pytest.fixture
def context(tmp_path: Path) -> SearchContext:
    return rung_context(tmp_path)


def checkpoints_of(task: TrainingTask) -> list[int]:
    return [one.step for one in list_checkpoints(task.checkpoints_uri)]


def weights_of(task: TrainingTask, step: int = 20) -> Mapping[str, torch.Tensor]:
    (found,) = [one for one in list_checkpoints(task.checkpoints_uri) if one.step == step]
    weights: Mapping[str, torch.Tensor] = read_state(found)["networks"]
    return weights


# --- the trial of a point


def test_a_trial_is_the_base_with_the_fields_of_its_point(context: SearchContext) -> None:
    trial = make_trial(context, {WEIGHT: 7.0})
    assert trial.spec.objective.discriminator_weight == 7.0
    assert trial.spec.model == context.base.model
    assert trial.steps == (5, 10, 20)
    assert trial.uri == storage.join(context.job_uri, "trials", trial.folder)


def test_the_folder_is_that_of_the_training(context: SearchContext) -> None:
    """The same weights, the same folder: nothing is trained twice. Another seed or value is another."""
    base = context.base.objective.discriminator_weight
    assert make_trial(context, {}).folder == make_trial(context, {WEIGHT: base}).folder
    assert make_trial(context, {}).folder == make_trial(context, {}, context.base.training.seed).folder
    others = [make_trial(context, {}), make_trial(context, {WEIGHT: 7.0}), make_trial(context, {}, seed=3)]
    assert len({one.folder for one in others}) == 3
    assert others[2].spec.training.seed == 3


def test_a_point_that_breaks_a_rule_is_no_trial(context: SearchContext) -> None:
    with pytest.raises(SpecError, match="hidden_size must be a multiple of num_attention_heads, got 32 and 3"):
        make_trial(context, {"model.num_attention_heads": 3})


def test_a_budget_in_tokens_buys_every_step_it_pays_for(tmp_path: Path) -> None:
    base = {**BASE, "training": {**BASE["training"], "num_train_steps": 100}}
    context = rung_context(tmp_path, base=base, budget={"tokens": 29 * 8 * 32})
    assert make_trial(context, {}).steps[-1] == 29


def test_a_budget_of_the_bases_own_steps_leaves_its_warmup(tmp_path: Path) -> None:
    base = {**BASE, "training": {**BASE["training"], "num_train_steps": 22}}
    base["optimizer"] = {"name": "electra_adam", "warmup_steps": 15}
    context = rung_context(tmp_path, base=base, budget={"steps": 22})
    assert make_trial(context, {}).spec.optimizer.warmup_steps == 15


# --- from rung to rung


def test_training_from_rung_to_rung_gives_the_weights_of_one_go(context: SearchContext, tmp_path: Path) -> None:
    """With dropout, bit for bit; and the loop alone, which knows nothing of trials, gives the same."""
    by_rungs = make_trial(context, {WEIGHT: 7.0})
    results = [advance(by_rungs, HELD_OUT, rung, context.job_uri) for rung in range(3)]
    plain = TrainingTask(by_rungs.spec, context.corpus, str(tmp_path / "plain"))
    assert train(plain, Worker(), SilentTelemetry()) == 20
    ours, theirs = weights_of(by_rungs.task), weights_of(plain)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert [one.step for one in results] == [5, 10, 20]


def test_a_rung_says_what_was_spent_and_what_was_lost(context: SearchContext) -> None:
    trial = make_trial(context, {})
    first, second, third = (advance(trial, HELD_OUT, rung, context.job_uri) for rung in range(3))
    assert [one.tokens for one in (first, second, third)] == [5 * 8 * 32, 10 * 8 * 32, 20 * 8 * 32]
    assert second.flops == flops_until(trial.spec, VOCAB_SIZE, 10)
    assert first.flops < second.flops < third.flops
    assert [[step for step, _ in one.losses] for one in (first, second)] == [[2, 4, 5], [6, 8, 10]]
    assert all({"generator_loss", "discriminator_loss"} <= figures.keys() for _, figures in third.losses)
    assert first.reason == ""


def test_a_rung_that_is_stored_is_never_run_again(context: SearchContext) -> None:
    """Nor is anything else there read: a trial that has ended only tells."""
    trial = make_trial(context, {})
    result = advance(trial, HELD_OUT, 0, context.job_uri)
    storage.delete_tree(trial.task.checkpoints_uri)
    again = advance(make_trial(context, {}), TrainingMeasure("no such figure"), 0, context.job_uri)
    assert again == result
    assert checkpoints_of(trial.task) == []


def test_a_trial_goes_on_where_it_was(context: SearchContext) -> None:
    """Between two attempts, with all that was in memory gone: the second rung has only the steps after the first."""
    advance(make_trial(context, {}), HELD_OUT, 0, context.job_uri)
    result = advance(make_trial(context, {}), HELD_OUT, 1, context.job_uri)
    assert [step for step, _ in result.losses] == [6, 8, 10]


def test_a_rung_of_other_shares_is_found_by_its_step(tmp_path: Path, context: SearchContext) -> None:
    """The final round scores trials at their ends alone; one that the search ran to its end with the seed is done."""
    trial = make_trial(context, {})
    results = [advance(trial, HELD_OUT, rung, context.job_uri) for rung in range(3)]
    final = make_trial(rung_context(tmp_path, scheduler={"type": "none"}), {})
    assert final.steps == (20,)
    assert RungResult.find(final, 0) == results[2]


def test_two_shares_at_one_step_are_trained_and_scored_once(tmp_path: Path) -> None:
    scheduler = {"type": "asha", "min_fraction": 0.02, "reduction_factor": 2}
    objective = {"type": "fixed_corruption", "reference_fraction": 1}
    context = rung_context(tmp_path, budget={"steps": 12}, scheduler=scheduler, objective=objective)
    trial = make_trial(context, {})
    assert trial.steps[:3] == (1, 1, 1)
    first = advance(trial, HELD_OUT, 0, context.job_uri)
    assert advance(trial, HELD_OUT, 1, context.job_uri) == first


def test_a_trial_that_diverges_has_no_score_and_a_reason(context: SearchContext) -> None:
    """A weight beyond float32: the loss is infinite at once."""
    trial = make_trial(context, {WEIGHT: 1e39})
    result = advance(trial, HELD_OUT, 1, context.job_uri)
    assert (result.score, result.reason) == (None, "the loss is not finite at step 0")
    assert (result.step, result.figures, result.losses) == (0, {}, ())
    assert RungResult.find(trial, 1) == result
    assert checkpoints_of(trial.task) == []


def test_a_trial_that_diverges_on_its_way_keeps_the_score_it_had(
    context: SearchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update of step 6 ruins the weights, so step 7 is the first whose loss is not finite."""
    trial = make_trial(context, {})
    first = advance(trial, HELD_OUT, 0, context.job_uri)
    monkeypatch.setattr("pipelines.training.train_loop.learning_rate", lambda step, *_: math.inf if step == 6 else 1e-4)
    second = advance(trial, HELD_OUT, 1, context.job_uri)
    assert (second.score, second.step, second.tokens) == (None, 7, 7 * 8 * 32)
    assert second.reason == "the loss is not finite at step 7"
    assert [step for step, _ in second.losses] == [6], "how it came to that is seen"
    assert RungResult.find(trial, 0) == first
    assert checkpoints_of(trial.task) == [5]


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_none(
    context: SearchContext, monkeypatch: pytest.MonkeyPatch, score: float
) -> None:
    """Nor are figures: whoever reads them next takes only numbers."""
    found = Score(score, {"auc": score, "loss": 0.25})
    monkeypatch.setattr("pipelines.searching.advance.score_trial", lambda *_: found)
    result = advance(make_trial(context, {}), HELD_OUT, 0, context.job_uri)
    assert (result.score, result.figures, result.reason) == (None, {"loss": 0.25}, "its score is not finite")
    assert RungResult.find(make_trial(context, {}), 0) == result


# --- what a process leaves that is lost


def test_a_trial_that_is_lost_while_it_is_scored_has_its_losses(
    context: SearchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What trained is at its checkpoint already, and logs nothing again."""

    def killed(*_: object) -> Score:
        raise SystemError

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.searching.advance.score_trial", killed)
        with pytest.raises(SystemError):
            advance(make_trial(context, {}), HELD_OUT, 0, context.job_uri)
    assert [step for step, _ in advance(make_trial(context, {}), HELD_OUT, 0, context.job_uri).losses] == [2, 4, 5]


def test_a_trial_that_is_lost_within_a_rung_has_each_loss_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is that of step 4: what was logged at step 6 is logged again, and what was before is not lost."""
    base = {**BASE, "training": {**BASE["training"], "checkpoint_interval_steps": 4}}
    context = rung_context(tmp_path, base=base)
    undisturbed = advance(make_trial(context, {}, seed=9), HELD_OUT, 1, context.job_uri)
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.training.train_loop.learning_rate", lambda step, *_: 1e-4 if step < 7 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            advance(make_trial(context, {}), HELD_OUT, 1, context.job_uri)
    trial = make_trial(context, {})
    assert checkpoints_of(trial.task)[-1] == 4
    assert [step for step, _ in read_curve(trial.uri)] == [2, 4, 6]
    result = advance(trial, HELD_OUT, 1, context.job_uri)
    assert [step for step, _ in result.losses] == [step for step, _ in undisturbed.losses] == [2, 4, 6, 8, 10]


def test_the_curve_is_written_before_a_checkpoint_is(tmp_path: Path) -> None:
    """Log steps are 2, 4, ..., checkpoints 5, 10, ...: a process that is killed after one leaves all until there."""
    base = {**BASE, "training": {**BASE["training"], "checkpoint_interval_steps": 5}}
    context = rung_context(tmp_path, base=base)
    trial = make_trial(context, {})
    telemetry = CurveTelemetry(ProgressReporter(JobDirectory(context.job_uri)), trial.uri, trial.task)
    left = {}
    for step in range(2, 14, 2):
        telemetry.log_training(step, {"generator_loss": 1.0 / step, "tokens": 5.0})
        left[step] = [one for one, _ in read_curve(trial.uri)]
    assert left == {
        2: [],
        4: [2, 4],
        6: [2, 4],
        8: [2, 4],
        10: [2, 4, 6, 8, 10],
        12: [2, 4, 6, 8, 10],
    }
    resumed = CurveTelemetry(ProgressReporter(JobDirectory(context.job_uri)), trial.uri, trial.task)
    resumed.report_step(6)  # the first after the checkpoint of step 5
    resumed.write()
    assert read_curve(trial.uri) == ((2, {"generator_loss": 0.5}), (4, {"generator_loss": 0.25}))


def test_a_rung_has_no_losses_of_rungs_of_other_shares(tmp_path: Path, context: SearchContext) -> None:
    """What the search stopped at step 10 the final round goes on with: both have their part of one curve."""
    for rung in range(2):
        advance(make_trial(context, {}), HELD_OUT, rung, context.job_uri)
    final = make_trial(rung_context(tmp_path, scheduler={"type": "none"}), {})
    result = advance(final, HELD_OUT, 0, context.job_uri)
    assert [step for step, _ in result.losses] == [12, 14, 16, 18, 20]


def test_every_sign_of_a_trial_of_one_worker_is_of_who_works(
    context: SearchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several: test_run_trials.py."""
    signs = []
    write = storage.write_json

    def noted(uri: str, document: Any) -> None:
        if uri.endswith(PROGRESS_FILE):
            signs.append((document["doing"], document["is_waiting"]))
        write(uri, document)

    monkeypatch.setattr(storage, "write_json", noted)
    advance(make_trial(context, {}), HELD_OUT, 0, context.job_uri)
    assert signs == [("going on to step 5", False), ("training, step 1", False), ("scoring step 5", False)]


def test_a_job_that_is_asked_to_stop_ends_the_training_with_a_checkpoint(context: SearchContext) -> None:
    storage.write_json(JobDirectory(context.job_uri).path(CONTROL_FILE), {"action": "cancel"})
    trial = make_trial(context, {})
    with pytest.raises(JobCancelled):
        advance(trial, HELD_OUT, 2, context.job_uri)
    assert RungResult.find(trial, 2) is None
    (step,) = checkpoints_of(trial.task)
    assert step < 20


def test_networks_of_a_step_without_a_checkpoint_are_not_to_be_had(context: SearchContext) -> None:
    trial = trained(make_trial(context, {}), context, 5)
    with pytest.raises(CheckpointError, match="must hold a checkpoint of step 7, got none"):
        networks_at(trial.task, 7)
