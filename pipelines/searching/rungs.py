"""Where on its way a trial is scored: shares of its budget, and the steps these are."""

from __future__ import annotations

import math

from pipelines.specs.search import (
    AshaScheduler,
    HyperbandScheduler,
    MedianStoppingScheduler,
    NoScheduler,
    Scheduler,
)


def rung_shares(scheduler: Scheduler) -> tuple[float, ...]:
    """Shares of a trial's budget, rising; the last is 1."""
    match scheduler:
        case NoScheduler(num_rungs=num_rungs):
            return tuple(k / num_rungs for k in range(1, num_rungs + 1))
        case AshaScheduler() | HyperbandScheduler():
            lowest, factor = scheduler.min_fraction, scheduler.reduction_factor
            num = math.ceil(math.log(1 / lowest) / math.log(factor) - 1e-9)
            return (*(lowest * factor**k for k in range(num)), 1.0)
        case MedianStoppingScheduler():
            return tuple(k / scheduler.num_rungs for k in range(1, scheduler.num_rungs + 1))


def rung_steps(shares: tuple[float, ...], num_train_steps: int) -> tuple[int, ...]:
    """The first step by which each share is spent; a short trial may have the same for two shares."""
    return tuple(min(num_train_steps, math.ceil(share * num_train_steps - 1e-9)) for share in shares)
