"""What jobs took of the cluster, added up. Pure.

An attempt counts from when it was first seen to run to when it was over, or to now. What a job computed (tokens, FLOPs)
is spread evenly over the time in which its attempts ran. So every figure of a window is the sum of those of its parts,
however it is cut and grouped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

Dimension = Literal["owner", "project", "kind", "day"]
DAY_MS = 86_400_000
_MILLICPU_MS_PER_HOUR = 3_600_000_000
_MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, kw_only=True)
class UsedAttempt:
    """One attempt, with what is known of its job. Moments in milliseconds since 1970."""

    job_id: str
    project: str
    owner: str
    kind: str
    started_ms: int
    ended_ms: int
    """Later than `started_ms`; of one that runs, now."""
    is_first: bool
    """No attempt of the job ran before."""
    num_millicpus: int
    num_gpus: int
    job_ms: int
    """That all attempts of the job have run."""
    tokens: int
    """Of the job."""
    flops: float
    """Of the job."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Figures of one group."""

    group: Mapping[str, str]
    """Dimension to value, in the order asked for; empty for the total."""
    cpu_hours: float
    gpu_hours: float
    flops: float
    tokens: float
    jobs: int
    """Whose first attempt began in the window."""
    attempts: int
    """That began in the window."""


@dataclass(frozen=True)
class AttemptTimes:
    """When an attempt ran."""

    attempt: int
    started_at: datetime
    ended_at: datetime | None


class UsageStore(Protocol):
    """Keeps what attempts took."""

    def used_attempts(
        self, from_ms: int, to_ms: int, now_ms: int, projects: frozenset[str] | None
    ) -> Iterator[UsedAttempt]:
        """Attempts that ran in a window, of some projects; None for all."""

    def attempts_of(self, job_id: str) -> Sequence[AttemptTimes]:
        """Attempts of a job that were seen to run, in their order."""


@dataclass
class _Sum:
    millicpu_ms: int = 0
    gpu_ms: int = 0
    jobs: int = 0
    attempts: int = 0

    def __post_init__(self) -> None:
        self.flops: list[float] = []
        self.tokens: list[float] = []


def add_up(attempts: Iterable[UsedAttempt], from_ms: int, to_ms: int, by: Sequence[Dimension]) -> list[Usage]:
    """Usage in a window, by group; groups in which nothing ran are absent.

    Args:
        attempts: all that ran in it, and any others.
        from_ms: its start.
        to_ms: its end, which is not part of it.
        by: what groups are told apart by; none for one sum.
    """
    sums: dict[tuple[str, ...], _Sum] = {}
    for one in attempts:
        for start, end in _pieces(max(one.started_ms, from_ms), min(one.ended_ms, to_ms), "day" in by):
            key = tuple(day_of(start) if name == "day" else str(getattr(one, name)) for name in by)
            total = sums.setdefault(key, _Sum())
            total.millicpu_ms += (end - start) * one.num_millicpus
            total.gpu_ms += (end - start) * one.num_gpus
            total.flops.append(one.flops * ((end - start) / one.job_ms))
            total.tokens.append(one.tokens * ((end - start) / one.job_ms))
            if start == one.started_ms:
                total.attempts += 1
                total.jobs += one.is_first
    return [_usage(dict(zip(by, key, strict=True)), total) for key, total in sorted(sums.items())]


def day_of(moment_ms: int) -> str:
    """The day in UTC, such as 2026-01-31."""
    return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d}"


def _pieces(start: int, end: int, by_day: bool) -> Iterator[tuple[int, int]]:
    while start < end:
        stop = min(end, (start // DAY_MS + 1) * DAY_MS) if by_day else end
        yield start, stop
        start = stop


def _usage(group: Mapping[str, str], total: _Sum) -> Usage:
    return Usage(
        group=group,
        cpu_hours=total.millicpu_ms / _MILLICPU_MS_PER_HOUR,
        gpu_hours=total.gpu_ms / _MS_PER_HOUR,
        flops=math.fsum(total.flops),
        tokens=math.fsum(total.tokens),
        jobs=total.jobs,
        attempts=total.attempts,
    )
