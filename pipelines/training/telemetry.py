"""Where the training loop's figures go: progress.json, MLflow and the log, from rank 0 alone."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from pipelines.job import ProgressReporter
from pipelines.specs.pretrain import PretrainSpec
from pipelines.training.workers import Worker

if TYPE_CHECKING:
    from pipelines.record.tracking import Run

log = logging.getLogger(__name__)

LOG_INTERVAL_SECONDS = 10.0
"""Shortest time between two lines of training figures in the log."""
HEADLINE_LOSSES = ("generator_loss", "mlm_loss", "discriminator_loss")
"""Every objective reports one of these at least, in training and held out."""
FLOOR_TOLERANCE = 0.002
"""Nats by which the discriminator must beat the entropy of the replaced share to have learned anything."""


class Telemetry(Protocol):
    """What the loop tells, and the one thing it asks."""

    def wants_to_stop(self, worker: Worker) -> bool:
        """Whether this worker knows that the job should stop."""
        ...

    def is_due(self) -> bool:
        """Whether `report_step` would be seen."""
        ...

    def report_step(self, step: int) -> None:
        """The loop lives and is at this step."""
        ...

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """Figures over the steps since the last call."""
        ...

    def log_evaluation(self, step: int, figures: Mapping[str, float]) -> None:
        """Held-out figures."""
        ...


class SilentTelemetry:
    """Of every rank but the first."""

    def wants_to_stop(self, worker: Worker) -> bool:
        """Never: rank 0 reads the wish and the loop shares it."""
        return False

    def is_due(self) -> bool:
        """Never."""
        return False

    def report_step(self, step: int) -> None:
        """Say nothing."""

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """Say nothing."""

    def log_evaluation(self, step: int, figures: Mapping[str, float]) -> None:
        """Say nothing."""


class RecordedTelemetry:
    """Of rank 0: into the job's directory, the MLflow run and the log."""

    def __init__(self, spec: PretrainSpec, reporter: ProgressReporter, run: Run) -> None:
        self._spec = spec
        self._reporter = reporter
        self._run = run
        self._last_logged = 0.0

    def wants_to_stop(self, worker: Worker) -> bool:
        """Whether control.json asks for it."""
        return self._reporter.is_cancelled()

    def is_due(self) -> bool:
        """Whether progress.json is old enough to be written again."""
        return self._reporter.is_due()

    def report_step(self, step: int) -> None:
        """Write the step and a heartbeat."""
        num_train_steps = self._spec.training.num_train_steps
        tokens = self._spec.training.tokens_until(step)
        self._reporter.update(step=step, tokens=tokens, fraction=step / num_train_steps)

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """Write everything, with the time that is left."""
        num_train_steps = self._spec.training.num_train_steps
        training = self._spec.training
        remaining_tokens = training.tokens_until(num_train_steps) - training.tokens_until(step)
        self._run.log_metrics(step, {f"train/{name}": value for name, value in figures.items()})
        self._reporter.update(
            step=step,
            num_train_steps=num_train_steps,
            tokens=int(figures["tokens"]),
            fraction=step / num_train_steps,
            tokens_per_second=figures["tokens_per_second"],
            eta_seconds=remaining_tokens / figures["tokens_per_second"],
            losses={name: value for name, value in figures.items() if _is_shown(name) and math.isfinite(value)},
            message="",
        )
        if time.monotonic() - self._last_logged >= LOG_INTERVAL_SECONDS or step == num_train_steps:
            self._last_logged = time.monotonic()
            log.info("training_progress", extra={"step": step, **{k: float(f"{v:.5g}") for k, v in figures.items()}})

    def log_evaluation(self, step: int, figures: Mapping[str, float]) -> None:
        """Write held-out figures, and warn while the discriminator has learned nothing."""
        self._run.log_metrics(step, {f"eval/{name}": value for name, value in figures.items()})
        self._reporter.update(now=True, evaluation=dict(figures))
        log.info("evaluated", extra={"step": step, **{name: float(f"{v:.5g}") for name, v in figures.items()}})
        floor = figures.get("discriminator_loss_floor")
        if floor is not None and figures["discriminator_loss"] > floor - FLOOR_TOLERANCE:
            advice = (
                "the discriminator's loss is at the entropy of the replaced share: so far it has learned nothing but "
                "that share. If this lasts, lower optimizer.learning_rate or model.generator_size_ratio"
            )
            extra = {"step": step, "discriminator_loss": figures["discriminator_loss"], "entropy": floor}
            log.warning("discriminator_at_entropy_floor", extra=extra | {"advice": advice})


def _is_shown(name: str) -> bool:
    is_of_a_network = name.startswith(("generator_", "discriminator_", "mlm_")) or name.endswith("_loss")
    return is_of_a_network or name in ("learning_rate", "gradient_norm", "mfu")
