"""Of a trial's training: the curve, kept for whoever records the trial."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.job import ProgressReporter
from pipelines.training.workers import Worker

CURVE_FILE = "curve.json"
PROGRESS_FILE = "progress.json"
ALIVE_SECONDS = 10.0
_KEPT = ("learning_rate", "gradient_norm", "tokens_per_second", "mfu")

Curve = tuple[tuple[int, Mapping[str, float]], ...]
"""Step and figures."""


class CurveTelemetry:
    """Remembers figures, and stops when the job is asked to."""

    def __init__(self, reporter: ProgressReporter, uri: str) -> None:
        """`reporter` knows whether the job should stop; `uri` is the trial's folder, where it says that it lives."""
        self._reporter = reporter
        self._uri = uri
        self._said_at = -math.inf
        self._curve: list[tuple[int, dict[str, float]]] = []

    @property
    def curve(self) -> Curve:
        """At each log step so far."""
        return tuple(self._curve)

    def write(self) -> None:
        """Put the curve into the folder, for another process."""
        storage.write_json(storage.join(self._uri, CURVE_FILE), {"curve": self._curve})

    def wants_to_stop(self, worker: Worker) -> bool:
        """Whether control.json asks for it."""
        return self._reporter.is_cancelled()

    def is_due(self) -> bool:
        """Whether it is time for a sign of life."""
        return time.monotonic() - self._said_at >= ALIVE_SECONDS

    def report_step(self, step: int) -> None:
        """Say that the trial lives; a sign that cannot be written is not worth it."""
        self._said_at = time.monotonic()
        with contextlib.suppress(StorageError):
            storage.write_json(storage.join(self._uri, PROGRESS_FILE), {"doing": f"training, step {step}"})

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """Remember losses and speed."""
        kept = {
            name: value
            for name, value in figures.items()
            if (name.endswith("_loss") or name in _KEPT) and math.isfinite(value)
        }
        self._curve.append((step, kept))
        if self.is_due():
            self.report_step(step)

    def log_evaluation(self, step: int, figures: Mapping[str, float]) -> None:
        """Pass over: trials are scored at their rungs."""


def read_curve(uri: str) -> Curve:
    """What `write` wrote; nothing where it wrote nothing."""
    found = storage.join(uri, CURVE_FILE)
    if not storage.exists(found):
        return ()
    curve: list[tuple[int, dict[str, float]]] = storage.read_json(found)["curve"]
    return tuple((int(step), figures) for step, figures in curve)
