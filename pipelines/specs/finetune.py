"""`kind: finetune`: everything that decides one finetuning job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.compute import FinetuneComputeSpec, Precision
from pipelines.specs.model_source import NetworkFiles, RegisteredNetwork
from pipelines.specs.record import FinetuneRecordSpec, Name
from pipelines.specs.task import SuiteSpec, TaskSpec, TaskSuite


class RegisteredModel(RegisteredNetwork):
    """A model of MLflow's registry."""

    without_pretraining: bool = False
    """Take sizes and vocabulary alone and start from random weights: what pretraining is worth."""


class ModelFiles(NetworkFiles):
    """Weights that lie somewhere."""

    network: Literal["discriminator", "generator"] = "discriminator"
    """Which, where there are several."""
    without_pretraining: bool = False
    """As of a registered model."""


ModelSource = Annotated[RegisteredModel | ModelFiles, Field(discriminator="type")]


class FinetuneTrainingSpec(FrozenModel):
    """How a task is learned. Defaults are those of the paper's appendix B and of G, but for the optimizer."""

    num_epochs: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """Passes over the training examples; the task's own when absent: 10 for RTE and STS-B, 3 for the rest of GLUE, 2
    for questions, and for other data 3, or as many up to 10 as make 3,000 steps."""
    num_train_steps: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """In place of epochs, those of a task too."""
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Examples per optimizer step."""
    max_sequence_length: Annotated[int, Field(ge=8, le=65_536)] = 128
    """Tokens of an example at most; longer ones are cut, texts that are searched for answers are read in windows. A
    batch is only as long as its longest example."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """Peak; by the width of the network when absent: 1e-3 below 256, then 3e-4, 1e-4 from 512 on, 5e-5 from 1024."""
    layerwise_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """The rate of a layer is this times that of the layer above it; 0.9 from 24 layers on, else 0.8, when absent. With
    `model.without_pretraining` 1 when absent: what knows nothing yet must learn as fast below as above."""
    layerwise_decay_skips_one: bool = False
    """Count one layer more between the head and all else, as G's code does."""
    warmup_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps in which the rate rises."""
    weight_decay: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Decoupled; not applied to LayerNorm and biases."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    dropout_prob: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Of hidden states, attention and head, whatever pretraining had."""
    optimizer: Literal["adamw", "electra_adam"] = "adamw"
    """As of pretraining. G's `electra_adam` has no bias correction: its first few hundred steps are several times as
    large, and on little data some seeds then end at chance (Mosbach et al. 2021, arXiv:2006.04884)."""
    precision: Precision = "fp32"
    """What matrix products compute in. `auto` is the faster on the machine: see `training.precision` of pretraining."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1, max_length=1000)] = (
        1,
        2,
        3,
    )
    """Each finetunes every task once: head, order of examples and dropout follow from it. Scores are medians."""
    evaluations_per_epoch: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Times per epoch the validation split is scored while training; 0 scores it at the end alone."""
    early_stopping_patience: Annotated[int, Field(ge=1)] | None = None
    """Stop when so many evaluations brought nothing better, and keep the weights of the best one. Where
    `evaluations_per_epoch` brings none before the end, there is one half way. Scores of models chosen on the validation
    split are too good there: believe those on `test`."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.num_epochs is not None and self.num_train_steps is not None:
            raise ValueError(
                f"num_epochs must be absent where num_train_steps is given, got {self.num_epochs:g} and "
                f"{self.num_train_steps}"
            )
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must all be different, got {', '.join(map(str, self.seeds))}")
        if self.early_stopping_patience is not None and not self.evaluations_per_epoch:
            raise ValueError(
                "evaluations_per_epoch must be above 0 where early_stopping_patience is given, "
                f"got 0 and {self.early_stopping_patience}"
            )
        return self


def check_epochs(tasks: Mapping[str, TaskSpec], training: FinetuneTrainingSpec) -> None:
    """Raise `ValueError` where a task's own epochs would not count.

    Args:
        tasks: by the field that holds each.
        training: of all of them.
    """
    for field, task in tasks.items():
        if task.num_epochs is not None and training.num_train_steps is not None:
            raise ValueError(
                f"{field}.num_epochs must be absent where training.num_train_steps is given, got {task.num_epochs:g} "
                f"and {training.num_train_steps}"
            )


class BaselineSpec(FrozenModel):
    """What the scores are held against; both cost seconds."""

    majority: bool = True
    """The commonest label, or the mean, for everything."""
    tfidf: bool = True
    """For classification: logistic regression on TF-IDF of words and pairs of words."""


class FinetuneSpec(FrozenModel):
    """One finetuning job: a task or a suite of tasks, some seeds each."""

    schema_version: Literal[1] = 1
    kind: Literal["finetune"]
    name: Name = "electra-finetuned"
    """What people call the job; names need not be unique."""
    model: ModelSource
    task: TaskSpec | None = None
    suite: SuiteSpec | None = None
    """Several tasks instead of one: a table with the mean comes out."""
    training: FinetuneTrainingSpec = FinetuneTrainingSpec()
    baselines: BaselineSpec = BaselineSpec()
    compute: FinetuneComputeSpec = FinetuneComputeSpec()
    record: FinetuneRecordSpec = FinetuneRecordSpec()

    @model_validator(mode="after")
    def _has_one_thing_to_do(self) -> Self:
        if (self.task is None) == (self.suite is None):
            raise ValueError(f"task or suite must be given, got {'neither' if self.task is None else 'both'}")
        return self

    @model_validator(mode="after")
    def _epochs_count(self) -> Self:
        tasks = {} if self.task is None else {"task": self.task}
        if isinstance(self.suite, TaskSuite):
            tasks |= {f"suite.tasks.{name}": task for name, task in self.suite.tasks.items()}
        check_epochs(tasks, self.training)
        return self

    def registered_name(self, task: str) -> str:
        """Registered model of one of the job's tasks."""
        name = self.record.model_name or self.name
        return name if self.task is not None else f"{name}-{task}"
