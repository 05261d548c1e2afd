"""What trials of a search are compared by, and what they may not be compared by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.evaluate import MinimalPairsSpec
from pipelines.specs.finetune import FinetuneTrainingSpec, check_epochs
from pipelines.specs.record import Name
from pipelines.specs.task import TaskSpec, check_averaged


class ProbeObjective(FrozenModel):
    """The mean score of tasks that a trial's encoder is finetuned on: what pretraining is for."""

    type: Literal["probe"]
    tasks: Annotated[dict[Name, TaskSpec], Field(min_length=1, max_length=20)]
    """By name."""
    training: FinetuneTrainingSpec = FinetuneTrainingSpec()
    """Each task is finetuned once for each of its seeds, where the trial was trained."""

    @model_validator(mode="after")
    def _tasks_fit(self) -> Self:
        check_averaged(self.tasks)
        check_epochs({f"tasks.{name}": task for name, task in self.tasks.items()}, self.training)
        return self


class MinimalPairsObjective(FrozenModel):
    """How often the discriminator prefers the better sentence: no training, and no labels but these pairs."""

    type: Literal["minimal_pairs"]
    pairs: MinimalPairsSpec


class FixedCorruptionObjective(FrozenModel):
    """The discriminator's figure on held-out text that is corrupted once for all trials, by a generator of its own."""

    type: Literal["fixed_corruption"]
    metric: Literal["auc", "loss"] = "auc"
    """Area under the ROC curve, or the mean loss, for which a calibrated discriminator is rewarded too."""
    reference_fraction: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Of a trial's budget, spent once on the base's networks: their generator corrupts."""


class TrainingMetricObjective(FrozenModel):
    """A held-out figure of a trial's own two networks. Refused where the space changes what it is measured with."""

    type: Literal["training_metric"]
    metric: Literal["discriminator_loss", "discriminator_auc", "discriminator_f1", "generator_loss"]


SearchObjective = Annotated[
    ProbeObjective | MinimalPairsObjective | FixedCorruptionObjective | TrainingMetricObjective,
    Field(discriminator="type"),
]

_OF_THE_GENERATOR = (
    "objective.generator",
    "objective.name",
    "objective.disallow_correct",
    "objective.two_stage_switch_fraction",
)


def check_comparable(objective: FrozenModel, space: Iterable[str]) -> None:
    """Raise `ValueError` where trials would be measured by different rulers.

    A discriminator's loss falls where replacements are easy to tell: with a small generator, few masks or a high
    temperature. The lowest loss is then that of the worst teacher.
    """
    if not isinstance(objective, TrainingMetricObjective):
        return
    if objective.metric == "generator_loss":
        why = "it is lowest for the largest generator and the easiest masks, whatever the discriminator has learned"
    else:
        why = "it is measured on what each trial's own generator wrote, and is best where that is easiest to tell"
    for path in space:
        what = _what_it_changes(path)
        if what is not None:
            raise ValueError(
                f"objective.type must not be 'training_metric' where the space changes {what} ({path}): of "
                f"{objective.metric}, {why}. Take 'probe', 'minimal_pairs' or 'fixed_corruption'"
            )


def _what_it_changes(path: str) -> str | None:
    if path in _OF_THE_GENERATOR or path.startswith("model."):  # its sizes follow from the discriminator's
        return "the generator"
    if path == "objective.temperature":
        return "the temperature"
    if path.startswith("masking."):
        return "the mask"
    if path == "training.sequence_length":
        return "the held-out rows"
    return None
