"""What a trial says of its training: signs of life, and the curve, kept for whoever records the trial."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.job import ProgressReporter
from pipelines.training.task import TrainingTask
from pipelines.training.workers import Worker

log = logging.getLogger(__name__)

CURVE_FILE = "curve.json"
PROGRESS_FILE = "progress.json"
ALIVE_SECONDS = 10.0
_KEPT = ("learning_rate", "gradient_norm", "tokens_per_second", "mfu")
_ONLY_WAITS: ContextVar[bool] = ContextVar("only_waits", default=False)

Curve = tuple[tuple[int, Mapping[str, float]], ...]
"""Step and figures."""


def say_alive(trial_uri: str, doing: str, is_waiting: bool = False) -> None:
    """A sign of life; one that cannot be written is not worth a trial.

    Args:
        trial_uri: folder of the trial.
        doing: for people.
        is_waiting: whether it waits for others, as for room on the cluster: silence is no fault then.
    """
    # The time makes each sign another: a trial may well say the same twice.
    sign = {"doing": doing, "is_waiting": is_waiting or _ONLY_WAITS.get(), "said_at": datetime.now(UTC).isoformat()}
    with contextlib.suppress(StorageError):
        storage.write_json(storage.join(trial_uri, PROGRESS_FILE), sign)


@contextlib.contextmanager
def only_waiting() -> Iterator[None]:
    """Signs said in here are those of a process that waits for workers, who speak for themselves once they run."""
    token = _ONLY_WAITS.set(True)
    try:
        yield
    finally:
        _ONLY_WAITS.reset(token)


class CurveTelemetry:
    """Remembers figures, and stops when the job is asked to.

    The curve in the folder is gone on with: of what stands there all is kept up to the step that is resumed at.

    Args:
        reporter: knows whether the job should stop.
        uri: folder of the trial.
        task: tells where there will be checkpoints.
    """

    def __init__(self, reporter: ProgressReporter, uri: str, task: TrainingTask) -> None:
        self._reporter = reporter
        self._uri = uri
        self._task = task
        self._said_at = -math.inf
        self._curve: list[tuple[int, Mapping[str, float]]] | None = None
        """None until the loop has said where it begins."""

    def write(self) -> None:
        """Put the curve into the folder, for another process.

        Raises:
            StorageError: it cannot be written.
        """
        if self._curve is not None:
            storage.write_json(storage.join(self._uri, CURVE_FILE), {"curve": self._curve})

    def wants_to_stop(self, worker: Worker) -> bool:
        """Whether control.json asks for it."""
        return self._reporter.is_cancelled()

    def is_due(self) -> bool:
        """Whether it is time for a sign of life."""
        return time.monotonic() - self._said_at >= ALIVE_SECONDS

    def report_step(self, step: int) -> None:
        """Say that the trial lives."""
        self._since(step)
        self._said_at = time.monotonic()
        say_alive(self._uri, f"training, step {step}")

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """Remember losses and speed."""
        kept = {
            name: value
            for name, value in figures.items()
            if (name.endswith("_loss") or name in _KEPT) and math.isfinite(value)
        }
        self._since(step).append((step, kept))
        if self._is_last_before_checkpoint(step):
            # Whoever resumes from that checkpoint has no other way to these figures.
            try:
                self.write()
            except StorageError as error:
                log.warning("curve_unwritten", extra={"reason": str(error)[:300]})
        if self.is_due():
            self.report_step(step)

    def log_evaluation(self, step: int, figures: Mapping[str, float]) -> None:
        """Pass over: trials are scored at their rungs."""

    def _since(self, step: int) -> list[tuple[int, Mapping[str, float]]]:
        """The curve. The loop speaks after its first step, which tells where it was resumed; what was logged beyond
        that is logged again.
        """
        if self._curve is None:
            self._curve = [(one, figures) for one, figures in read_curve(self._uri) if one < step]
        return self._curve

    def _is_last_before_checkpoint(self, step: int) -> bool:
        training = self._task.spec.training
        steps_left = -step % training.checkpoint_interval_steps
        return step == self._task.end_step or steps_left < training.log_interval_steps


def read_curve(uri: str) -> Curve:
    """What `write` wrote; nothing where it wrote nothing."""
    found = storage.join(uri, CURVE_FILE)
    if not storage.exists(found):
        return ()
    curve: list[tuple[int, dict[str, float]]] = storage.read_json(found)["curve"]
    return tuple((int(step), figures) for step, figures in curve)
