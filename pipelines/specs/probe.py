"""Finetuning while pretraining: what the encoder is worth so far."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.compute import FinetuneComputeSpec
from pipelines.specs.finetune import BaselineSpec, FinetuneTrainingSpec, check_epochs
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
    the end. Of `two_stage` none is made before the discriminator is trained."""
    training: FinetuneTrainingSpec = FinetuneTrainingSpec()
    baselines: BaselineSpec = BaselineSpec()
    compute: FinetuneComputeSpec = FinetuneComputeSpec()
    """Besides the workers that pretrain."""

    @model_validator(mode="after")
    def _tasks_fit(self) -> Self:
        check_averaged(self.tasks)
        check_epochs({f"tasks.{name}": task for name, task in self.tasks.items()}, self.training)
        return self
