"""Finetuning while pretraining: what the encoder is worth so far."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.compute import FinetuneComputeSpec
from pipelines.specs.finetune import BaselineSpec, FinetuneTrainingSpec
from pipelines.specs.record import Name
from pipelines.specs.task import TaskSpec, check_averaged


class ProbeSpec(FrozenModel):
    """Tasks that checkpoints of the main network are finetuned on, beside training where the cluster has room, else
    when training has ended.
    """

    tasks: Annotated[dict[Name, TaskSpec], Field(min_length=1, max_length=20)]
    """By name."""
    interval_steps: Annotated[int, Field(ge=1)] = 10_000
    """Steps of pretraining between two probes, a multiple of `training.checkpoint_interval_steps`; one more is made at
    the end."""
    training: FinetuneTrainingSpec = FinetuneTrainingSpec()
    baselines: BaselineSpec = BaselineSpec()
    compute: FinetuneComputeSpec = FinetuneComputeSpec()
    """Besides the workers that pretrain."""

    @model_validator(mode="after")
    def _scores_can_be_averaged(self) -> Self:
        check_averaged(self.tasks)
        return self

    def is_due(self, step: int, num_train_steps: int) -> bool:
        """Whether the weights after so many steps are probed."""
        return step > 0 and (step % self.interval_steps == 0 or step == num_train_steps)
