"""A trial on its way through Ray Tune, and what it left on its way."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from pipelines.errors import StorageError
from pipelines.searching.trial import RungResult, Trial
from pipelines.specs.trial_documents import TrialSummary


@dataclass(eq=False)
class Entrant:
    """A trial that was handed out, or will be."""

    summary: TrialSummary
    """As it was when it was handed out first in this attempt."""
    trial: Trial
    token: Any
    """The proposer's."""
    num_losses: int = 0
    not_before: float = 0.0
    """By the monotonic clock."""
    told: set[int] = field(default_factory=set)
    """Rungs whose scores the proposer knows."""

    @property
    def is_replay(self) -> bool:
        """Of an earlier attempt, and done with: it only reads its scores once more."""
        return is_done(self.summary)


def is_done(trial: TrialSummary) -> bool:
    """Whether it came to an end of its own, with scores; what failed is tried again."""
    return trial.state in ("COMPLETED", "STOPPED", "DIVERGED") and bool(trial.rungs)


def read_rungs(trial: Trial, rung: int) -> list[RungResult]:
    """All up to a rung, and what lies there of rungs beyond it.

    Raises:
        StorageError: one of them cannot be read, or is not there.
    """
    found = [RungResult.find(trial, one) for one in range(len(trial.steps))]
    rungs = [one for one in itertools.takewhile(lambda one: one is not None, found) if one is not None]
    if len(rungs) <= rung:
        raise StorageError(trial.uri, f"must hold scores at {rung + 1} rungs, got {len(rungs)}")
    return rungs
