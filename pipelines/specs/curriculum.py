"""Stages of training: rows and batches of other sizes before the last ones. Pure arithmetic on steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel


class CurriculumStage(FrozenModel):
    """From the end of the stage before until a step: rows of this length, batches of this size.

    Short rows first cost less (BERT trained nine tenths of its steps at 128 of 512 tokens, Devlin et al. 2019,
    appendix A.2); small batches first do with fewer tokens while gradients all point the same way (Brown et al. 2020,
    appendix B).
    """

    until_step: Annotated[int, Field(ge=1)]
    """First step, counted from 0, that belongs to the next stage."""
    sequence_length: Annotated[int, Field(ge=8, le=65_536)] | None = None
    """Tokens per row, [CLS] and [SEP] included; `training.sequence_length` when absent."""
    global_batch_size: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Rows per optimizer step; `training.global_batch_size` when absent."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.sequence_length is None and self.global_batch_size is None:
            raise ValueError("a stage must have a sequence_length or a global_batch_size, got neither")
        return self


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps [first_step, end_step), all of one shape."""

    first_step: int
    end_step: int
    sequence_length: int
    global_batch_size: int

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step, over all workers."""
        return self.sequence_length * self.global_batch_size

    def steps_until(self, step: int) -> int:
        """How many of the first `step` steps of training are this stage's."""
        return max(0, min(step, self.end_step) - self.first_step)


def stages_until(
    num_train_steps: int, curriculum: Sequence[CurriculumStage], sequence_length: int, global_batch_size: int
) -> tuple[Stage, ...]:
    """The curriculum's stages, then one of the given length and batch size up to the last step."""
    stages, first_step = [], 0
    for stage in curriculum:
        length, batch_size = stage.sequence_length or sequence_length, stage.global_batch_size or global_batch_size
        stages.append(Stage(first_step, stage.until_step, length, batch_size))
        first_step = stage.until_step
    return (*stages, Stage(first_step, num_train_steps, sequence_length, global_batch_size))
