"""Stages in the spec, in the plan and in the loop; exact resume under every optimizer and over the ends of stages."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from test_train_loop import Notebook, assert_bitwise_equal, weights_of
from training_task import make_task

from electra_core.accounting import training_flops_per_token
from pipelines.errors import CheckpointError, JobCancelled
from pipelines.specs.parsing import dump_spec, load_spec
from pipelines.specs.plan import flops_until, plan_job
from pipelines.specs.presets import PRESETS
from pipelines.specs.spec_errors import SpecError
from pipelines.training.batches import Batches
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

pytestmark = pytest.mark.usefixtures("one_thread")

STAGES = (
    "training.curriculum=[{until_step: 8, sequence_length: 16, global_batch_size: 8}, "
    "{until_step: 12, global_batch_size: 4}]"
)


def test_tokens_are_counted_stage_by_stage(tmp_path: Path):
    training = make_task(tmp_path, STAGES).spec.training
    # 8 steps of 8 × 16, 4 of 4 × 32, 8 of 16 × 32.
    assert [training.tokens_until(step) for step in (0, 1, 8, 10, 12, 20)] == [0, 128, 1024, 1280, 1536, 5632]
    assert [training.stage_at(step).tokens_per_step for step in (0, 7, 8, 11, 12, 19, 20)] == [
        128, 128, 128, 128, 512, 512, 512]  # fmt: skip


def test_flops_and_plan_follow_the_stages(tmp_path: Path):
    spec = make_task(tmp_path, STAGES).spec
    short, long = (training_flops_per_token(spec.model, spec.masking, 300, length).total for length in (16, 32))
    assert flops_until(spec, 300, 20) == pytest.approx(1024 * short + (512 + 4096) * long)
    plan = plan_job(spec, vocab_size=300)
    assert (plan.tokens_per_step, plan.total_tokens) == (512, 5632)
    assert plan.total_flops == pytest.approx(flops_until(spec, 300, 20))
    wide = make_task(tmp_path, "training.curriculum=[{until_step: 8, global_batch_size: 64}]").spec
    plain = make_task(tmp_path).spec
    assert plan_job(wide).memory_bytes_per_worker > plan_job(plain).memory_bytes_per_worker


def test_stages_of_the_objective_are_priced_within_those_of_the_curriculum(tmp_path: Path):
    """The generator learns for 10 steps, the discriminator for 10; rows are short until step 8, batches until 12."""
    spec = make_task(tmp_path, STAGES, "objective.name=two_stage", "model.generator_size_ratio=1").spec
    sizes = (spec.model, spec.masking, 300)
    cost = {
        (length, stage): training_flops_per_token(*sizes, length, spec.objective, stage).total
        for length in (16, 32)
        for stage in (0, 1)
    }
    expected = 1024 * cost[16, 0] + 256 * cost[32, 0] + (256 + 4096) * cost[32, 1]
    assert flops_until(spec, 300, 20) == pytest.approx(expected)
    assert flops_until(spec, 300, 11) == pytest.approx(1024 * cost[16, 0] + 256 * cost[32, 0] + 128 * cost[32, 1])
    assert plan_job(spec, vocab_size=300).flops_per_step == pytest.approx(512 * cost[32, 1])


def test_a_plan_without_stages_is_steps_times_the_step():
    spec = PRESETS["small"]()
    plan = plan_job(spec)
    assert plan.total_tokens == spec.training.num_train_steps * 128 * 128
    assert plan.total_flops == plan.flops_per_step * spec.training.num_train_steps


def test_a_curriculum_survives_json(tmp_path: Path):
    spec = make_task(tmp_path, STAGES).spec
    assert load_spec(dump_spec(spec)) == spec


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "training.curriculum=[{until_step: 8, sequence_length: 16}, {until_step: 8, global_batch_size: 4}]",
            "must increase from stage to stage and stay below num_train_steps, got 8, 8 and 20",
        ),
        ("training.curriculum=[{until_step: 20, sequence_length: 16}]", "below num_train_steps, got 20 and 20"),
        (
            "training.curriculum=[{until_step: 8, sequence_length: 64}]",
            "training.curriculum.0.sequence_length must be at most model.max_position_embeddings, got 64 and 32",
        ),
        (
            "training.curriculum=[{until_step: 8, global_batch_size: 3}]",
            "training.curriculum.0.global_batch_size must be a multiple of compute.num_workers × "
            "training.gradient_accumulation_steps, got 3 and 2",
        ),
        ("training.curriculum=[{until_step: 8}]", "training.curriculum.0: a stage must have a sequence_length or"),
        ("training.curriculum=[{until_step: 0, sequence_length: 16}]", "curriculum.0.until_step: Input should be"),
        (
            "optimizer={schedule: warmup_stable_decay, warmup_steps: 5, decay_fraction: 0.8}",
            "must fit into training.num_train_steps, got 5, 16 and 20",
        ),
    ],
)
def test_bad_stages_and_schedules_are_refused(tmp_path: Path, override: str, expected: str):
    with pytest.raises(SpecError) as caught:
        make_task(tmp_path, "training.gradient_accumulation_steps=2", override)
    assert expected in str(caught.value)


def test_two_workers_get_the_halves_of_one_workers_batches(tmp_path: Path):
    task = make_task(tmp_path, STAGES)
    whole, halves = Batches(task, Worker()), [Batches(task, Worker(rank, 2)) for rank in (0, 1)]
    for step in (0, 7, 8, 11, 12, 19):
        (one, _), two = whole.at(step), [half.at(step)[0] for half in halves]
        for name in ("generator_input_ids", "original_ids", "masked_positions", "rows"):
            assert torch.equal(torch.cat([getattr(part, name) for part in two]), getattr(one, name))
        stage = task.spec.training.stage_at(step)
        assert one.original_ids.shape == (stage.global_batch_size, stage.sequence_length)
        # N of G: 0.155 × 16 and 0.155 × 32.
        assert one.masked_positions.shape[1] == {16: 2, 32: 4}[stage.sequence_length]


class Meter(Notebook):
    """Remembers tokens and FLOPs too."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.work: dict[int, tuple[float, float]] = {}

    def log_training(self, step, figures) -> None:
        self.work[step] = (figures["tokens"], figures["flops"])
        assert math.isfinite(figures["tokens_per_second"])
        super().log_training(step, figures)


@pytest.mark.parametrize("fail_at", [7, 13])
@pytest.mark.parametrize("optimizer", ["electra_adam", "adamw", "muon"])
def test_resuming_is_exact_under_every_optimizer_and_over_the_ends_of_stages(
    tmp_path: Path, optimizer: str, fail_at: int
):
    """Checkpoints at 5 and 10, stages end at 8 and 12: killed at 7 and at 13, the resumed run meets both ends."""
    overrides = [STAGES, f"optimizer.name={optimizer}", "optimizer.layerwise_decay=0.9"]
    undisturbed, disturbed, resumed = Meter(), Meter(fail_at=fail_at), Meter()
    whole, broken = (make_task(tmp_path, *overrides, name=name) for name in ("whole", "broken"))
    train(whole, Worker(), undisturbed)
    with pytest.raises(KeyboardInterrupt):
        train(broken, Worker(), disturbed)
    train(broken, Worker(), resumed)
    assert min(resumed.losses) == fail_at // 5 * 5 + 1
    assert {**disturbed.losses, **resumed.losses} == undisturbed.losses
    assert {**disturbed.work, **resumed.work} == undisturbed.work
    assert undisturbed.work[20] == (5632, flops_until(whole.spec, whole.corpus.vocab_size, 20))
    assert_bitwise_equal(weights_of(broken), weights_of(whole))


@pytest.mark.parametrize(
    "override",
    [
        STAGES,
        "optimizer.name=adamw",
        "optimizer.schedule=cosine",
        "optimizer.layerwise_decay=0.9",
        "optimizer.discriminator_learning_rate_ratio=2",
        "optimizer={name: muon, muon_momentum: 0.9}",
    ],
)
def test_what_decides_the_weights_is_part_of_the_identity(tmp_path: Path, override: str):
    assert make_task(tmp_path, override).identity != make_task(tmp_path).identity


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        train(make_task(tmp_path, "optimizer.name=muon"), Worker(), Notebook(fail_at=7))
    with pytest.raises(CheckpointError, match="same spec and corpus"):
        train(make_task(tmp_path), Worker(), Notebook())


def test_held_out_figures_have_the_last_stages_length(tmp_path: Path):
    """Made in the first stage, of initial weights, since the first update of a warm-up has rate 0."""
    initial = ["optimizer.warmup_steps=1", "evaluation.interval_steps=1"]
    plain, staged = Notebook(stop_at=2), Notebook(stop_at=2)
    with pytest.raises(JobCancelled):
        train(make_task(tmp_path, *initial, name="plain"), Worker(), plain)
    with pytest.raises(JobCancelled):
        train(make_task(tmp_path, *initial, STAGES, name="staged"), Worker(), staged)
    assert staged.losses[1] != plain.losses[1]
    assert staged.evaluations[1] == plain.evaluations[1]
