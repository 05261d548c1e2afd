"""Every objective in the loop: resumes bit for bit, is evaluated and stays the same under accumulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from training_task import make_task

from pipelines.evaluation import mark_example
from pipelines.rows.loader import ValidationRows
from pipelines.training.checkpoint import list_checkpoints, read_state
from pipelines.training.evaluate import evaluate
from pipelines.training.task import TrainingTask, build_networks
from pipelines.training.telemetry import HEADLINE_LOSSES, SilentTelemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

pytestmark = pytest.mark.usefixtures("one_thread")

OBJECTIVES = {
    "electra": (),
    "uniform": ("objective.generator=uniform",),
    "unigram": ("objective.generator=unigram",),
    "electra_15": ("objective.name=electra_15",),
    "random_15": ("objective.name=random_15",),
    "replace_mlm": ("objective.name=replace_mlm",),
    "all_tokens_mlm": ("objective.name=all_tokens_mlm",),
    "mlm": ("objective.name=mlm",),
    "electric": ("objective.name=electric",),
    "two_stage": ("objective.name=two_stage", "model.generator_size_ratio=1"),  # make_task names another ratio
    "adversarial": ("objective.name=adversarial",),
}
SHORT = (
    "optimizer.warmup_steps=2",
    "training.num_train_steps=8",
    "training.global_batch_size=8",
    "training.checkpoint_interval_steps=2",
    "model.num_hidden_layers=1",
    "evaluation.interval_steps=7",
)


class Diary(SilentTelemetry):
    """Remembers all losses by step; fails at a step."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.losses: dict[int, dict[str, float]] = {}
        self.evaluations: dict[int, dict[str, float]] = {}
        self._fail_at = fail_at

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        self.losses[step] = {name: value for name, value in figures.items() if name.endswith("_loss")}
        if step == self._fail_at:
            raise KeyboardInterrupt

    def log_evaluation(self, step: int, figures: Mapping[str, float]) -> None:
        self.evaluations[step] = dict(figures)


def task_of(folder: Path, objective: str, name: str, *more: str) -> TrainingTask:
    return make_task(folder, *SHORT, *OBJECTIVES[objective], *more, name=name)


def run(task: TrainingTask, fail_at: int | None = None) -> Diary:
    diary = Diary(fail_at)
    if fail_at is None:
        train(task, Worker(), diary)
    else:
        with pytest.raises(KeyboardInterrupt):
            train(task, Worker(), diary)
    return diary


def state_of(task: TrainingTask) -> dict[str, torch.Tensor]:
    state = read_state(list_checkpoints(task.checkpoints_uri)[-1])
    moments = {
        f"{index}.{key}": value
        for index, values in state["optimizer"]["state"].items()
        for key, value in values.items()
        if isinstance(value, torch.Tensor)
    }
    return {**state["networks"], **moments}


@pytest.mark.parametrize("optimizer", ["electra_adam", "muon"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_resumed_run_equals_the_undisturbed_one_bit_for_bit(tmp_path: Path, objective: str, optimizer: str):
    """Killed at steps 5 and 7: of two stages the first resumption starts at the switch, the second after it."""
    whole, broken = (task_of(tmp_path, objective, name, f"optimizer.name={optimizer}") for name in ("whole", "broken"))
    undisturbed = run(whole)
    diaries = [run(broken, fail_at=5), run(broken, fail_at=7), run(broken)]
    assert [min(diary.losses) for diary in diaries] == [1, 5, 7]
    merged = {step: losses for diary in diaries for step, losses in diary.losses.items()}
    assert merged == undisturbed.losses
    left, right = state_of(whole), state_of(broken)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)

    figures = undisturbed.evaluations[7]
    assert set(figures) & set(HEADLINE_LOSSES)
    assert ("discriminator_auc" in figures) == ("replaced_fraction" in figures)


def test_stages_switch_at_their_step(tmp_path: Path):
    diary = run(task_of(tmp_path, "two_stage", "job", "objective.two_stage_switch_fraction=0.25"))
    assert ["discriminator_loss" in diary.losses[step] for step in range(1, 9)] == [False] * 2 + [True] * 6
    assert "reinforce_loss" not in diary.losses[8]


def test_a_resumption_before_the_switch_copies_the_weights_again(tmp_path: Path):
    whole, broken = (task_of(tmp_path, "two_stage", name) for name in ("whole", "broken"))
    run(whole)
    run(broken, fail_at=3)
    assert min(run(broken).losses) == 3
    left, right = state_of(whole), state_of(broken)
    assert all(torch.equal(right[name], value) for name, value in left.items())


@pytest.mark.parametrize("objective", ["random_15", "electric", "two_stage", "adversarial"])
def test_accumulation_changes_no_loss(tmp_path: Path, objective: str):
    whole = run(task_of(tmp_path, objective, "whole"))
    parts = run(task_of(tmp_path, objective, "parts", "training.gradient_accumulation_steps=4"))
    for step, losses in whole.losses.items():
        assert parts.losses[step] == pytest.approx(losses, rel=1e-4)


@dataclass(frozen=True)
class IdleWorker(Worker):
    """One that gets no row, as where there are fewer rows than workers."""

    def share(self, count: int) -> range:
        return range(count, count)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_held_out_figures_have_baselines_and_the_same_names_on_a_worker_without_rows(tmp_path: Path, objective: str):
    task = task_of(tmp_path, objective, "job")
    networks, rows = build_networks(task.spec, task.corpus), ValidationRows(task.corpus, 32, 3)
    last = task.spec.training.num_train_steps - 1
    networks.enter_stage(task.spec.objective.stage_at(last, last + 1), is_start=False)
    whole = evaluate(networks, rows, task, Worker())
    assert any(name.endswith("_accuracy") for name in whole.baselines)
    assert set(whole.baselines) <= set(whole.figures)
    idle = evaluate(networks, rows, task, IdleWorker())
    assert list(idle.figures) == list(whole.figures)
    assert all(value == 0 for name, value in idle.figures.items() if name.endswith("_loss"))


def test_networks_that_detect_nothing_show_no_example(tmp_path: Path):
    task = task_of(tmp_path, "mlm", "job")
    assert (
        mark_example(build_networks(task.spec, task.corpus), ValidationRows(task.corpus, 32, 4), task, Worker()) == ()
    )
