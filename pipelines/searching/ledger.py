"""The list of a search's trials: what the driver knows, kept in the job's directory for the next attempt.

A point is put down before anything of it starts, and how it ended as soon as that is known; the rungs in between lie in
the trials' own folders.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.searching.agreement import last_losses
from pipelines.searching.trial import RungResult, Trial
from pipelines.specs.space import Point
from pipelines.specs.trial_documents import (
    NEW_TRIALS_FILE,
    TRIALS_FILE,
    RungScore,
    TrialList,
    TrialState,
    TrialSummary,
    rank,
)

WRITE_SHARE = 0.05
"""Of the driver's time that writing the list may take: ten thousand trials are megabytes."""


class Ledger:
    """All trials of a search, by number.

    Args:
        directory: of the job; has a list from an earlier attempt, or none.
        metric: what a score is called.
        mode: whether more of it is better.
    """

    def __init__(self, directory: JobDirectory, metric: str, mode: Literal["max", "min"]) -> None:
        self._uri, self._new_uri = directory.path(TRIALS_FILE), directory.path(NEW_TRIALS_FILE)
        self.metric, self.mode = metric, mode
        self._lock = threading.RLock()
        self._trials: list[TrialSummary] = []
        self._next_write = 0.0
        self.is_behind = False
        """Whether there is something that the list lacks, as it is written."""
        self._trials += _read(self._uri)
        self._num_listed = len(self._trials)
        """Trials that the list had when it was written last."""
        self._trials += [one for one in _read(self._new_uri) if one.number >= self._num_listed]
        self.is_behind = len(self._trials) > self._num_listed

    @property
    def trials(self) -> tuple[TrialSummary, ...]:
        """All so far, by number."""
        with self._lock:
            return tuple(self._trials)

    def __getitem__(self, number: int) -> TrialSummary:
        with self._lock:
            return self._trials[number]

    def add(self, point: Point, trial: Trial, *, is_final: bool = False) -> TrialSummary:
        """Put down a trial before it starts: in the list, or beside it where it is too soon to write that again.

        Raises:
            StorageError: it cannot be written.
        """
        spec = trial.spec
        with self._lock:
            summary = TrialSummary(
                number=len(self._trials),
                is_final=is_final,
                state="RUNNING",
                point=dict(point),
                seed=spec.training.seed,
                num_train_steps=spec.training.num_train_steps,
                folder=trial.folder,
            )
            self._trials.append(summary)
            self.is_behind = True
            self.write()
            if self.is_behind:
                self._write(self._new_uri, self._trials[self._num_listed :])
            return summary

    def add_invalid(self, point: Point, reason: str) -> None:
        """Put down a point that is no pretraining spec."""
        with self._lock:
            self._trials.append(
                TrialSummary(number=len(self._trials), state="INVALID", point=dict(point), seed=0, reason=reason[:1000])
            )
            self.is_behind = True

    def begins_again(self, number: int) -> None:
        """A trial that had failed is tried once more."""
        with self._lock:
            self._trials[number] = self._trials[number].model_copy(update={"state": "RUNNING", "reason": ""})
            self.is_behind = True

    def reached(self, number: int, rungs: Sequence[RungResult]) -> None:
        """A trial has come so far.

        Args:
            number: of the trial.
            rungs: all it has reached.
        """
        last = rungs[-1]
        with self._lock:
            self._trials[number] = self._trials[number].model_copy(
                update={
                    "score": next((one.score for one in reversed(rungs) if one.score is not None), None),
                    "step": last.step,
                    "tokens": last.tokens,
                    "flops": last.flops,
                    "rungs": tuple(
                        RungScore(
                            step=one.step,
                            tokens=one.tokens,
                            flops=one.flops,
                            score=one.score,
                            figures=dict(one.figures),
                            losses=last_losses(one.losses),
                        )
                        for one in rungs
                    ),
                    "train_seconds": sum(one.train_seconds for one in rungs),
                    "score_seconds": sum(one.score_seconds for one in rungs),
                    "reason": last.reason,
                }
            )
            self.is_behind = True

    def ended(self, number: int, state: TrialState, reason: str = "") -> None:
        """A trial will go no further."""
        with self._lock:
            before = self._trials[number]
            changes = {"state": state, "reason": reason[:1000] or before.reason}
            self._trials[number] = before.model_copy(update=changes)
            self.is_behind = True

    def write(self, *, now: bool = False) -> None:
        """Write what has changed, if it is time; at once with `now`.

        Changes are noted without a write, for they are made where Ray Tune calls us, and it takes what is raised there
        for a fault of its own; what a list that was not written lacks, the trials' folders have.

        Raises:
            StorageError: the list cannot be written.
        """
        with self._lock:
            start = time.monotonic()
            if not self.is_behind or (not now and start < self._next_write):
                return
            self._write(self._uri, self._trials)
            self._num_listed = len(self._trials)
            self.is_behind = False
            self._next_write = time.monotonic() + (time.monotonic() - start) / WRITE_SHARE

    def _write(self, uri: str, trials: Sequence[TrialSummary]) -> None:
        document = TrialList(metric=self.metric, mode=self.mode, trials=tuple(trials))
        storage.write_json(uri, document.model_dump(mode="json"))

    def counts(self) -> dict[str, int]:
        """Trials of the search, without the final round, by state."""
        return dict(Counter(one.state for one in self.trials if not one.is_final))

    def best(self, count: int) -> tuple[TrialSummary, ...]:
        """The best trials of the search, as `rank` has it. One that diverged or failed is none of them, whatever it
        scored before: there is no network of it.
        """
        with self._lock:
            own = [one for one in self._trials if not one.is_final and one.state not in ("DIVERGED", "FAILED")]
        scored = [one for one in own if one.score is not None]
        return tuple(sorted(scored, key=lambda one: rank(one, self.mode))[:count])

    def without_rungs(self, trials: Sequence[TrialSummary]) -> tuple[TrialSummary, ...]:
        """The same, shorter."""
        return tuple(one.model_copy(update={"rungs": ()}) for one in trials)


def _read(uri: str) -> tuple[TrialSummary, ...]:
    return TrialList.model_validate(storage.read_json(uri)).trials if storage.exists(uri) else ()
