"""The loop: exact resume, any number of workers, ends that are not the last step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from gloo_workers import run_workers
from training_task import make_task

from pipelines.errors import CheckpointError, JobCancelled, NonFiniteLossError
from pipelines.training.checkpoint import list_checkpoints, read_state
from pipelines.training.task import TrainingTask
from pipelines.training.telemetry import SilentTelemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

pytestmark = pytest.mark.usefixtures("one_thread")


class Notebook(SilentTelemetry):
    """Remembers losses by step; asks to stop, or fails, at a step."""

    def __init__(self, stop_at: int | None = None, fail_at: int | None = None) -> None:
        self.losses: dict[int, tuple[float, float]] = {}
        self.evaluations: dict[int, dict[str, float]] = {}
        self._stop_at, self._fail_at = stop_at, fail_at

    def wants_to_stop(self, worker: Worker) -> bool:
        return self._stop_at is not None and len(self.losses) + 1 >= self._stop_at

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        # Objectives that lack one of the two are run here as well.
        self.losses[step] = (figures.get("generator_loss", 0.0), figures.get("discriminator_loss", 0.0))
        if step == self._fail_at:
            raise KeyboardInterrupt

    def log_evaluation(self, step: int, figures: Mapping[str, float]) -> None:
        self.evaluations[step] = dict(figures)


def weights_of(task: TrainingTask) -> dict[str, torch.Tensor]:
    return read_state(list_checkpoints(task.checkpoints_uri)[-1])["networks"]


def assert_bitwise_equal(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_resumed_run_equals_the_undisturbed_one_bit_for_bit(tmp_path: Path):
    """Killed at step 13, between checkpoints at 10 and 15, with dropout on."""
    undisturbed, disturbed = Notebook(), Notebook(fail_at=13)
    whole = make_task(tmp_path, name="whole")
    train(whole, Worker(), undisturbed)
    broken = make_task(tmp_path, name="broken")
    with pytest.raises(KeyboardInterrupt):
        train(broken, Worker(), disturbed)
    resumed = Notebook()
    train(broken, Worker(), resumed)
    assert min(resumed.losses) == 11
    assert {**disturbed.losses, **resumed.losses} == undisturbed.losses
    assert_bitwise_equal(weights_of(broken), weights_of(whole))


def test_accumulation_changes_no_loss(tmp_path: Path):
    """The same global batch in one part and in four."""
    whole, parts = Notebook(), Notebook()
    train(make_task(tmp_path, name="a"), Worker(), whole)
    train(make_task(tmp_path, "training.gradient_accumulation_steps=4", name="b"), Worker(), parts)
    for step, losses in whole.losses.items():
        assert parts.losses[step] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize(
    "sharing", [("none",), ("all", "model.generator_size_ratio=1"), ("gdes", "model.generator_num_hidden_layers=1")]
)
def test_whole_words_and_every_sharing_resume_bit_for_bit(tmp_path: Path, sharing: tuple[str, ...]):
    overrides = [f"model.sharing={sharing[0]}", *sharing[1:], "masking.whole_word=true", "evaluation.interval_steps=8"]
    whole, broken = (make_task(tmp_path, *overrides, name=name) for name in ("whole", "broken"))
    undisturbed = Notebook()
    train(whole, Worker(), undisturbed)
    with pytest.raises(KeyboardInterrupt):
        train(broken, Worker(), Notebook(fail_at=13))
    resumed = Notebook()
    train(broken, Worker(), resumed)
    assert_bitwise_equal(weights_of(broken), weights_of(whole))
    assert resumed.evaluations[16] == undisturbed.evaluations[16]
    assert undisturbed.losses[20][1] < undisturbed.losses[1][1]


def test_two_workers_see_the_batches_and_losses_of_one(tmp_path: Path):
    """Over the ends of stages too: those of the objective train parameters of their own."""
    jobs = {
        "curriculum": ["training.curriculum=[{until_step: 12, sequence_length: 16, global_batch_size: 8}]"],
        "two_stage": ["objective.name=two_stage", "model.generator_size_ratio=1", "training.num_train_steps=8"],
    }
    by_two = train_in_processes(tmp_path, 2, [Run(f"two-{name}", overrides) for name, overrides in jobs.items()])
    for (name, overrides), two in zip(jobs.items(), by_two, strict=True):
        one = Notebook()
        train(make_task(tmp_path, *overrides, name=name), Worker(), one)
        assert two.keys() == one.losses.keys()
        for step, losses in one.losses.items():
            assert two[step] == pytest.approx(losses, rel=1e-5)


def test_three_workers_resume_bit_for_bit(tmp_path: Path):
    """Sums over three depend on the layout of the gradient buckets, so this proves that the layout is settled.

    Under Muon, whose work the workers share.
    """
    changes = ["training.global_batch_size=9", "optimizer.name=muon"]
    train_in_processes(tmp_path, 3, [Run("whole", changes), Run("broken", changes, fail_at=13), Run("broken", changes)])
    whole, broken = (make_task(tmp_path, *changes, name=name) for name in ("whole", "broken"))
    assert_bitwise_equal(weights_of(broken), weights_of(whole))


def test_being_asked_to_stop_saves_a_checkpoint_first(tmp_path: Path):
    task = make_task(tmp_path)
    with pytest.raises(JobCancelled):
        train(task, Worker(), Notebook(stop_at=7))
    assert list_checkpoints(task.checkpoints_uri)[-1].step == 7


def test_a_job_that_was_paused_ends_with_the_weights_of_one_that_was_not(tmp_path: Path):
    """Paused twice, between checkpoints and between evaluations."""
    whole, paused = (make_task(tmp_path, "evaluation.interval_steps=8", name=name) for name in ("whole", "paused"))
    undisturbed = Notebook()
    train(whole, Worker(), undisturbed)
    losses: dict[int, tuple[float, float]] = {}
    for steps in (7, 6):
        part = Notebook(stop_at=steps)
        with pytest.raises(JobCancelled):
            train(paused, Worker(), part)
        losses |= part.losses
    rest = Notebook()
    train(paused, Worker(), rest)
    assert losses | rest.losses == undisturbed.losses
    assert sorted(losses) == list(range(1, 14))
    assert_bitwise_equal(weights_of(paused), weights_of(whole))


def test_a_loss_that_is_not_finite_stops_at_its_step_and_saves_nothing_after(tmp_path: Path, monkeypatch):
    """The update of step 6 ruins the weights, so step 7 is the first whose loss is not finite."""
    task = make_task(tmp_path, "training.log_interval_steps=10")
    monkeypatch.setattr("pipelines.training.train_loop.learning_rate", lambda step, *_: math.inf if step == 6 else 1e-4)
    with pytest.raises(NonFiniteLossError) as caught:
        train(task, Worker(), Notebook())
    assert caught.value.step == 7
    assert [checkpoint.step for checkpoint in list_checkpoints(task.checkpoints_uri)] == [5]


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path):
    task = make_task(tmp_path, "training.num_checkpoints_to_keep=3")
    train(task, Worker(), Notebook())
    assert [checkpoint.step for checkpoint in list_checkpoints(task.checkpoints_uri)] == [10, 15, 20]


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path):
    task = make_task(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(task, Worker(), Notebook(fail_at=13))
    newest = Path(list_checkpoints(task.checkpoints_uri)[-1].uri) / "state.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    resumed = Notebook()
    train(task, Worker(), resumed)
    assert min(resumed.losses) == 6


def test_a_checkpoint_of_another_spec_is_refused(tmp_path: Path):
    train(make_task(tmp_path), Worker(), Notebook())
    other = make_task(tmp_path, "objective.discriminator_weight=20")
    with pytest.raises(CheckpointError, match="same spec and corpus"):
        train(other, Worker(), Notebook())


def test_whatever_is_shared_or_masked_otherwise_is_another_job(tmp_path: Path):
    changes = ["model.sharing=none", "model.generator_num_hidden_layers=1", "masking.whole_word=true"]
    assert len({make_task(tmp_path, *change).identity for change in ([], *([c] for c in changes))}) == 4


def test_held_out_figures_do_not_depend_on_when_they_are_made(tmp_path: Path):
    notebook = Notebook()
    train(make_task(tmp_path, "evaluation.interval_steps=6"), Worker(), notebook)
    assert set(notebook.evaluations) == {6, 12, 18}
    assert notebook.evaluations[18] != notebook.evaluations[6]
    fewer = Notebook()
    train(make_task(tmp_path, "evaluation.interval_steps=18", name="fewer"), Worker(), fewer)
    assert fewer.evaluations[18] == notebook.evaluations[18]


class Run(NamedTuple):
    """One training in processes of its own, up to a step if one is given."""

    name: str
    overrides: Sequence[str]
    fail_at: int | None = None


def train_in_processes(folder: Path, num_workers: int, runs: list[Run]) -> list[dict[int, tuple[float, float]]]:
    """Train one run after the other with gloo; rank 0's losses by step, of each."""
    answers = run_workers(num_workers, partial(_train_rank, folder, runs))
    assert len(answers) == num_workers
    return answers[0]


def _train_rank(folder, runs, rank, num_workers):
    notebooks = []
    for run in runs:
        notebooks.append(Notebook(fail_at=run.fail_at))
        task = make_task(folder, f"compute.num_workers={num_workers}", *run.overrides, name=run.name)
        with contextlib.suppress(KeyboardInterrupt):
            train(task, Worker(rank, num_workers), notebooks[-1])
    return [notebook.losses for notebook in notebooks]
