"""One finetuning run, a task with one seed: what it needs to know, and what it leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from electra_core.config import EncoderConfig, HeadConfig, OptimizerConfig
from pipelines import storage
from pipelines.finetuning.base_model import BaseModel
from pipelines.specs.compute import WorkerSpec
from pipelines.specs.finetune import FinetuneTrainingSpec
from pipelines.specs.task import ClassificationTask, QuestionAnsweringTask, RegressionTask, TokenClassificationTask
from pipelines.storage.artifacts import digest_of
from pipelines.tasks.glue import NUM_EPOCHS
from pipelines.tasks.prepare import PreparedTask

RUN_VERSION = 3
"""Raised when the same spec takes other steps, such as batches in another order: what was begun before is then no part
of the run, and neither gone on with nor read as its result."""
RESULT_FILE = "result.json"
WEIGHTS_FILE = "weights.safetensors"
PROGRESS_FILE = "progress.json"
DEFAULT_EPOCHS, QUESTION_EPOCHS, MOST_EPOCHS = 3.0, 2.0, 10.0
ENOUGH_STEPS = 3000
"""One's own data gets as many epochs as make so many steps, `MOST_EPOCHS` at most: with little data three epochs are
too few updates, above all for a small network or for many labels (Mosbach et al. 2021, arXiv:2006.04884)."""
_LEARNING_RATES = ((256, 1e-3), (512, 3e-4), (1024, 1e-4), (math.inf, 5e-5))
"""By the width below which each holds."""


@dataclass(frozen=True)
class SeedTask:
    """What one run needs to know."""

    prepared: PreparedTask
    base: BaseModel
    training: FinetuneTrainingSpec
    compute: WorkerSpec
    seed: int
    uri: str
    """Folder of the run: progress, checkpoints, then predictions, weights and result."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.prepared.name} seed {self.seed}"

    @property
    def log_source(self) -> str:
        """Under which its process keeps its log."""
        return f"seed-{self.prepared.name}-{self.seed}"

    @property
    def identity(self) -> str:
        """Digest of what decides the weights and the scores."""
        return digest_of(
            {
                "version": RUN_VERSION,
                "task": self.prepared.digest,
                "labels": list(self.prepared.labels),
                "spec": self.prepared.task.model_dump(mode="json", exclude={"data"}),
                "base": self.base.sha256,
                "training": self.training.model_dump(mode="json", exclude={"seeds"}),
                "seed": self.seed,
            }
        )

    @property
    def encoder(self) -> EncoderConfig:
        """Sizes of the pretrained network with the dropout of finetuning."""
        dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), self.training.dropout_prob)
        return EncoderConfig.model_validate({**dict(self.base.encoder), **dropout})

    @property
    def head(self) -> HeadConfig:
        """The task's head."""
        task = self.prepared.task
        return HeadConfig(
            task=task.kind,
            num_labels=max(1, len(self.prepared.labels)),
            style=task.head if isinstance(task, ClassificationTask | RegressionTask) else "transformers",
            dropout_prob=self.training.dropout_prob,
        )

    @property
    def max_sequence_length(self) -> int:
        """Tokens of an example at most."""
        return self.prepared.task.max_sequence_length or self.training.max_sequence_length

    def num_steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps of the whole run."""
        if self.training.num_train_steps is not None:
            return self.training.num_train_steps
        return max(1, round(self.num_epochs(steps_per_epoch) * steps_per_epoch))

    def num_epochs(self, steps_per_epoch: int) -> float:
        """Passes over the training examples: the task's, or the spec's, or the original's, or what the data need."""
        return self.prepared.task.num_epochs or self.training.num_epochs or self._default_epochs(steps_per_epoch)

    def _default_epochs(self, steps_per_epoch: int) -> float:
        if self.prepared.glue_name is not None:
            return NUM_EPOCHS.get(self.prepared.glue_name, DEFAULT_EPOCHS)
        if isinstance(self.prepared.task, QuestionAnsweringTask):
            return QUESTION_EPOCHS
        return min(max(DEFAULT_EPOCHS, ENOUGH_STEPS / steps_per_epoch), MOST_EPOCHS)

    def evaluation_interval(self, steps_per_epoch: int) -> int | None:
        """Steps between two evaluations while training; None where there are none."""
        if not self.training.evaluations_per_epoch:
            return None
        interval = max(1, round(steps_per_epoch / self.training.evaluations_per_epoch))
        num_steps = self.num_steps(steps_per_epoch)
        if self.training.early_stopping_patience is not None and interval >= num_steps:
            return max(1, num_steps // 2)  # what never looks has nothing to choose from
        return interval

    def optimizer(self, num_steps: int) -> OptimizerConfig:
        """The rules for the weights; what the spec leaves open depends on the size of the network."""
        training, encoder = self.training, self.base.encoder
        rate = training.learning_rate or default_learning_rate(encoder.hidden_size)
        return OptimizerConfig(
            name=training.optimizer,
            learning_rate=rate,
            warmup_steps=math.floor(training.warmup_fraction * num_steps),
            layerwise_decay=training.layerwise_decay or self._default_layerwise_decay,
            layerwise_decay_skips_one=training.layerwise_decay_skips_one,
            weight_decay=training.weight_decay,
            max_grad_norm=training.max_grad_norm,
        )

    @property
    def _default_layerwise_decay(self) -> float:
        if self.base.without_pretraining:
            return 1.0  # there is nothing below that should be kept
        return 0.9 if self.base.encoder.num_hidden_layers >= 24 else 0.8

    def class_weights(self) -> tuple[float, ...] | None:
        """Of the labels in their order, or None where all are alike."""
        task, labels = self.prepared.task, self.prepared.labels
        if not isinstance(task, ClassificationTask | TokenClassificationTask) or task.class_weights is None:
            return None
        if task.class_weights == "balanced":
            counts = np.maximum(np.array(self.prepared.label_counts, np.float64), 1.0)
            return tuple(float(weight) for weight in counts.sum() / (len(counts) * counts))
        return tuple(task.class_weights.get(label, 1.0) for label in labels)


def default_learning_rate(hidden_size: int) -> float:
    """The original's for the three sizes of the paper (appendix B); above them for networks narrower than Small, which
    the tasks at hand showed to want more: 128 wide, Banking77 ended at 0.69 with 3e-4, at 0.74 with 1e-3 and nowhere
    with 3e-3; tagging, in one epoch, at 0.79, 0.82 and 0.79.
    """
    return next(rate for width, rate in _LEARNING_RATES if hidden_size < width)


@dataclass(frozen=True)
class SeedResult:
    """What a finished run leaves, as `result.json` holds it."""

    identity: str
    task: str
    seed: int
    num_steps: int
    """Steps taken; fewer than planned where it stopped early."""
    scores: dict[str, dict[str, float]]
    """Split to its scores, for those with labels."""
    losses: tuple[tuple[int, float], ...]
    """Steps and the mean training loss up to them."""
    evaluations: tuple[tuple[int, dict[str, float]], ...]
    """Steps and scores of the validation split while training."""
    examples_per_second: float
    """Of training, evaluations left out."""
    seconds: float
    """From the first step to the result."""
    precision: str | None = None
    """In which the last of its processes computed matrix products; None in files older than this figure."""

    def write(self, uri: str) -> None:
        """Write the run's last word."""
        storage.write_json(storage.join(uri, RESULT_FILE), asdict(self))

    @classmethod
    def find(cls, uri: str, identity: str) -> SeedResult | None:
        """What a run left, or None where it never ended or was another one."""
        path = storage.join(uri, RESULT_FILE)
        if not storage.exists(path):
            return None
        document: Mapping[str, Any] = storage.read_json(path)
        if document.get("identity") != identity:
            return None
        return cls(
            **{
                **document,
                "losses": tuple((step, loss) for step, loss in document["losses"]),
                "evaluations": tuple((step, scores) for step, scores in document["evaluations"]),
            }
        )
