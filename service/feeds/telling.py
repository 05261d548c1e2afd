"""Which events a change of a job's row is told by. Pure, but for the memory of when a job last told of itself."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pipelines.specs.documents import JobResult, Progress
from service.feeds.records import EventType, Told
from service.records import Job, JobFailure

MAX_FIGURES = 200
"""Figures of one event; a job that has more shows them in its row and in MLflow."""
_MAX_MESSAGE_CHARACTERS = 1000
_MAX_GATED_JOBS = 10_000


class ProgressGate:
    """Lets a job tell of its progress only now and then: a row changes every two seconds, and events are kept."""

    def __init__(self, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._told_at: dict[str, float] = {}
        self._owing: set[str] = set()
        self._lock = threading.Lock()

    def passes(self, job_id: str, *, at_once: bool = False) -> bool:
        """Whether the job may tell now; if so, that is noted. `at_once`: what it says must not be missed."""
        with self._lock:
            now = self._clock()
            if not at_once and now - self._told_at.get(job_id, -math.inf) < self._interval_seconds:
                self._owing.add(job_id)
                return False
            self._told_at.pop(job_id, None)
            self._owing.discard(job_id)
            while len(self._told_at) >= _MAX_GATED_JOBS:
                forgotten = next(iter(self._told_at))
                self._told_at.pop(forgotten)
                self._owing.discard(forgotten)
            self._told_at[job_id] = now
            return True

    def is_owing(self, job_id: str) -> bool:
        """Whether the last that the job had to tell was held back."""
        with self._lock:
            return job_id in self._owing


def told_of_insert(job: Job) -> list[Told]:
    """A new job."""
    payload = {"name": job.name, "kind": job.kind, "state": job.state.value, "spec_sha256": job.spec_sha256}
    return [Told(EventType.CREATED, payload)]


def told_of_wish(wish: str) -> list[Told]:
    """Something asked of a job, such as `cancel`."""
    return [Told(EventType.WISH, {"wish": wish})]


def told_of_update(job: Job, changes: Mapping[str, Any], gate: ProgressGate) -> list[Told]:
    """What changes to `job`, as it was before, are told by. A change of state comes last: nothing follows the end."""
    told: list[Told] = []
    state, attempt = changes.get("state", job.state), changes.get("attempt", job.attempt)
    moves = (state, attempt) != (job.state, job.attempt)
    progress, before = changes.get("progress"), job.progress
    if isinstance(progress, Progress):
        is_new = before is None or (before.stage, before.attempt) != (progress.stage, progress.attempt)
        # What comes with a move would otherwise be the last that was never told.
        if gate.passes(job.job_id, at_once=is_new or moves):
            told += _told_of_progress(progress)
    elif moves and before is not None and gate.is_owing(job.job_id):
        gate.passes(job.job_id, at_once=True)
        told += _told_of_progress(before)
    result = changes.get("result")
    if isinstance(result, JobResult) and result.evaluation:
        figures = {"evaluation": _figures(result.evaluation), "baselines": _figures(result.baselines)}
        told.append(
            Told(EventType.METRICS, {"attempt": result.attempt, "is_final": True, "step": result.step} | figures)
        )
    if moves:
        payload = {"state": str(state), "before": job.state.value, "attempt": attempt}
        failure = changes.get("failure")
        if isinstance(failure, JobFailure):
            message = failure.message[:_MAX_MESSAGE_CHARACTERS]
            said = {"code": failure.code, "reason": failure.reason.value, "message": message}
            payload["failure"] = said | {"attempt": failure.attempt}
        told.append(Told(EventType.STATE, payload))
    return told


def _told_of_progress(progress: Progress) -> list[Told]:
    names = ("attempt", "stage", "message", "fraction", "step", "num_train_steps", "tokens", "tokens_per_second")
    payload = {name: getattr(progress, name) for name in (*names, "eta_seconds")}
    payload["message"] = progress.message[:_MAX_MESSAGE_CHARACTERS]
    told = [Told(EventType.PROGRESS, _finite(payload))]
    if progress.losses or progress.evaluation:
        figures = {"losses": _figures(progress.losses), "evaluation": _figures(progress.evaluation)}
        head = {"attempt": progress.attempt, "is_final": False, "step": progress.step}
        told.append(Told(EventType.METRICS, head | figures))
    return told


def _figures(figures: Mapping[str, float]) -> dict[str, float]:
    return _finite(dict(list(figures.items())[:MAX_FIGURES]))


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON has a word for: it knows neither NaN nor infinity."""
    return {key: value for key, value in values.items() if not isinstance(value, float) or math.isfinite(value)}
