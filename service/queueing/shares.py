"""Whose turn it is among equals: by what each owner holds now, and has held of late. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from service.queueing.amounts import Amount, amount_of
from service.queueing.records import Active


@dataclass(frozen=True)
class Usage:
    """What an owner has used, each second worth half as much after each half-life."""

    owner: str
    cpu_seconds: float
    gpu_seconds: float
    as_of: datetime

    def at(self, now: datetime, half_life: timedelta) -> Usage:
        """What is left of it later. A clock that was set back changes nothing."""
        passed = max((now - self.as_of).total_seconds(), 0.0)
        faded = 0.5 ** (passed / half_life.total_seconds())
        return replace(self, cpu_seconds=self.cpu_seconds * faded, gpu_seconds=self.gpu_seconds * faded, as_of=now)


def with_use(
    usages: Mapping[str, Usage], active: Iterable[Active], seconds: float, now: datetime, half_life: timedelta
) -> dict[str, Usage]:
    """The use of those who hold something, `seconds` of it added; of the others it fades by itself."""
    held: dict[str, Amount] = {}
    for job in active:
        held[job.owner] = held.get(job.owner, Amount()) + amount_of(job.demand)
    added = {}
    # The integral of the fading over these seconds, so that the sum does not hang on how often it is made.
    lasting = _full_seconds(half_life) * (1.0 - 0.5 ** (seconds / half_life.total_seconds()))
    for owner, amount in held.items():
        faded = usages.get(owner, Usage(owner, 0.0, 0.0, now)).at(now, half_life)
        added[owner] = replace(
            faded,
            cpu_seconds=faded.cpu_seconds + amount.cpus * lasting,
            gpu_seconds=faded.gpu_seconds + amount.gpus * lasting,
        )
    return added


def dominant_share(amount: Amount, whole: Amount) -> float:
    """The larger of the shares of the CPUs and of the GPUs.

    Source: Ghodsi et al. 2011, "Dominant Resource Fairness".
    """
    cpus = amount.cpus / whole.cpus if whole.cpus > 0 else 0.0
    gpus = amount.gpus / whole.gpus if whole.gpus > 0 else 0.0
    return max(cpus, gpus)


def recent_share(usage: Usage, now: datetime, half_life: timedelta, whole: Amount) -> float:
    """The share that, held all the time, would have left this use."""
    seconds = _full_seconds(half_life)
    faded = usage.at(now, half_life)
    return dominant_share(Amount(faded.cpu_seconds / seconds, faded.gpu_seconds / seconds), whole)


def _full_seconds(half_life: timedelta) -> float:
    """What is left of a second's use, each second for ever."""
    return half_life.total_seconds() / math.log(2.0)
