"""`kind: pretrain`: everything that decides one pretraining job."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel, MaskingConfig, ModelConfig, ObjectiveConfig, OptimizerConfig
from electra_core.parts import check_model_fits
from pipelines.specs.compute import ComputeSpec, Precision
from pipelines.specs.corpus import CorpusSpec, PretrainedTokenizerSpec, TokenizerSpec, WordPieceSpec
from pipelines.specs.curriculum import CurriculumStage, Stage, stages_until
from pipelines.specs.initialization import InitializationSpec
from pipelines.specs.probe import ProbeSpec
from pipelines.specs.record import Name, RecordSpec


class TrainingSpec(FrozenModel):
    """The loop: how long, how large a step, how often it reports and saves."""

    num_train_steps: Annotated[int, Field(ge=1, le=100_000_000)] = 1_000_000
    """Optimizer steps."""
    global_batch_size: Annotated[int, Field(ge=1, le=1_048_576)] = 128
    """Rows per optimizer step, over all workers and accumulation steps."""
    sequence_length: Annotated[int, Field(ge=8, le=65_536)] = 128
    """Tokens per row, [CLS] and [SEP] included. Rows are packed full, so none is padding."""
    two_segment_fraction: Annotated[float, Field(ge=0, le=1)] = 0.9
    """Share of rows that read [CLS] a [SEP] b [SEP], with token type 1 from b on, as G's do; the others have one
    segment. At 0 token type 1 is never trained, which finetuning reads second texts and contexts with. Held-out rows
    have one segment."""
    curriculum: tuple[CurriculumStage, ...] = ()
    """Stages before the last, with rows or batches of another size. The last has `sequence_length` and
    `global_batch_size` as given here, and so have all held-out figures."""
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=4096)] = 1
    """Parts each worker's share of a batch is computed in."""
    precision: Precision = "fp32"
    """What matrix products compute in, the one that gives the generator's logits included. Weights, losses and
    sampling from those logits are fp32 either way. `auto` is bf16 on GPUs that have it and on processors where it is
    the faster, which are those with AMX and AMD's with AVX-512 for bf16, and else fp32; so a job that goes on on
    another kind of machine may go on in the other."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 42
    """Initial weights, data order, masking, dropout and sampling follow from it."""
    log_interval_steps: Annotated[int, Field(ge=1)] = 100
    """Steps between two readings of the losses: the only times the device is waited for."""
    checkpoint_interval_steps: Annotated[int, Field(ge=1)] = 10_000
    num_checkpoints_to_keep: Annotated[int, Field(ge=1, le=1000)] = 2
    max_failures: Annotated[int, Field(ge=0, le=1000)] = 3
    """Times a lost worker is replaced, from the last checkpoint, before the attempt fails."""

    @model_validator(mode="after")
    def _stages_follow_each_other(self) -> Self:
        ends = [0, *(stage.until_step for stage in self.curriculum), self.num_train_steps]
        for before, after in itertools.pairwise(ends):
            if before >= after:
                raise ValueError(
                    "curriculum.until_step must increase from stage to stage and stay below num_train_steps, "
                    f"got {', '.join(map(str, ends[1:-1]))} and {self.num_train_steps}"
                )
        return self

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All of training in order; one stage where there is no curriculum."""
        return stages_until(self.num_train_steps, self.curriculum, self.sequence_length, self.global_batch_size)

    def stage_at(self, step: int) -> Stage:
        """The stage a step from 0 belongs to; past the end the last."""
        return next((stage for stage in self.stages if step < stage.end_step), self.stages[-1])

    def tokens_until(self, step: int) -> int:
        """Tokens of the first `step` steps, over all workers."""
        return sum(stage.steps_until(step) * stage.tokens_per_step for stage in self.stages)


class EvaluationSpec(FrozenModel):
    """Held-out figures: the same rows, the same positions and the same draws every time."""

    interval_steps: Annotated[int, Field(ge=1)] = 10_000
    """Steps between evaluations; one more is made at the end."""
    max_rows: Annotated[int, Field(ge=1, le=10_000_000)] = 2048
    """Rows of `sequence_length` tokens read from the held-out documents at most."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Fixes which positions are corrupted and the draws behind each sample, whatever the training seed is."""


class PretrainSpec(FrozenModel):
    """One pretraining job. A resolved spec, with every default filled in, reproduces it."""

    schema_version: Literal[1] = 1
    kind: Literal["pretrain"]
    name: Name = "electra"
    """What people call the job; names need not be unique."""
    preset: Literal["tiny", "small", "base", "large"] | None = None
    """The preset the spec was written on top of, for the record: its values are filled in below."""
    corpus: CorpusSpec = CorpusSpec()
    tokenizer: TokenizerSpec = WordPieceSpec()
    initialization: InitializationSpec | None = None
    """Weights to start from; the seed's when absent. They bring a vocabulary with them, so `tokenizer` must be of type
    `pretrained` then."""
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingSpec = TrainingSpec()
    compute: ComputeSpec = ComputeSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    probe: ProbeSpec | None = None
    """Tasks that checkpoints are finetuned on while pretraining goes on."""
    record: RecordSpec = RecordSpec()

    @model_validator(mode="after")
    def _vocabulary_is_given_with_weights(self) -> Self:
        if self.initialization is not None and not isinstance(self.tokenizer, PretrainedTokenizerSpec):
            raise ValueError(
                "tokenizer.type must be 'pretrained' where initialization is given, as weights belong to a vocabulary, "
                f"got {self.tokenizer.type!r}"
            )
        return self

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        training, compute = self.training, self.compute
        parts = compute.num_workers * training.gradient_accumulation_steps
        for index, stage in enumerate(training.stages):
            section = f"training.curriculum.{index}" if index < len(training.curriculum) else "training"
            if stage.sequence_length > self.model.max_position_embeddings:
                raise ValueError(
                    f"{section}.sequence_length must be at most model.max_position_embeddings, "
                    f"got {stage.sequence_length} and {self.model.max_position_embeddings}"
                )
            if stage.global_batch_size % parts:
                raise ValueError(
                    f"{section}.global_batch_size must be a multiple of compute.num_workers × "
                    f"training.gradient_accumulation_steps, got {stage.global_batch_size} and {parts}"
                )
        if self.optimizer.warmup_steps >= training.num_train_steps:
            raise ValueError(
                "optimizer.warmup_steps must be less than training.num_train_steps, "
                f"got {self.optimizer.warmup_steps} and {training.num_train_steps}"
            )
        decay_steps = self.optimizer.decay_steps(training.num_train_steps)
        is_stable_between = self.optimizer.warmup_steps + decay_steps <= training.num_train_steps
        if self.optimizer.schedule == "warmup_stable_decay" and not is_stable_between:
            raise ValueError(
                "optimizer.warmup_steps and the steps of optimizer.decay_fraction must fit into "
                f"training.num_train_steps, got {self.optimizer.warmup_steps}, {decay_steps} and "
                f"{training.num_train_steps}"
            )
        return self

    @model_validator(mode="after")
    def _probe_fits(self) -> Self:
        if self.probe is None:
            return self
        interval, saved = self.probe.interval_steps, self.training.checkpoint_interval_steps
        if interval % saved:
            raise ValueError(
                "probe.interval_steps must be a multiple of training.checkpoint_interval_steps, "
                f"got {interval} and {saved}"
            )
        if self.training.num_checkpoints_to_keep < 2:
            raise ValueError(
                "training.num_checkpoints_to_keep must be at least 2 where there is a probe, which reads checkpoints "
                f"while newer ones are written, got {self.training.num_checkpoints_to_keep}"
            )
        for name, task in self.probe.tasks.items():
            length = task.max_sequence_length or self.probe.training.max_sequence_length
            if length > self.model.max_position_embeddings:
                raise ValueError(
                    "probe.training.max_sequence_length must be at most model.max_position_embeddings, "
                    f"got {length} for {name} and {self.model.max_position_embeddings}"
                )
        return self

    @model_validator(mode="after")
    def _networks_fit_the_objective(self) -> Self:
        check_model_fits(self.model, self.objective)
        steps = self.training.num_train_steps
        ends = (*self.objective.stage_starts(steps)[1:], steps)
        if any(start >= end for start, end in itertools.pairwise((0, *ends))):
            raise ValueError(
                "objective.two_stage_switch_fraction must leave each stage a step of training.num_train_steps, "
                f"got {self.objective.two_stage_switch_fraction:g} of {steps}, which switches at step {ends[0]}"
            )
        return self

    @property
    def longest_row(self) -> int:
        """Tokens of the longest rows of any stage: positions past it are never trained."""
        return max(stage.sequence_length for stage in self.training.stages)

    @property
    def probed_steps(self) -> tuple[int, ...]:
        """After how many steps the main network is probed; none before it is trained at all."""
        if self.probe is None:
            return ()
        num_steps, interval = self.training.num_train_steps, self.probe.interval_steps
        untrained_until = self.objective.stage_starts(num_steps)[-1]
        return (*(step for step in range(interval, num_steps, interval) if step > untrained_until), num_steps)

    @property
    def discriminator_model_name(self) -> str:
        """Registered name of the main network."""
        return self.record.model_name or self.name

    @property
    def generator_model_name(self) -> str:
        """Registered name of the generator."""
        return f"{self.discriminator_model_name}-generator"

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step over all workers, in the last stage."""
        return self.training.stages[-1].tokens_per_step
