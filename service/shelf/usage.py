"""What jobs took of the cluster, added up. Pure.

An attempt counts from when it was first seen to run to when it was over, or to now. What a job computed (tokens, FLOPs)
is spread evenly over the time in which its attempts ran. So every figure of a window is the sum of those of its parts,
however it is cut and grouped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

Dimension = Literal["owner", "project", "kind", "day"]
DAY_MS = 86_400_000
MAX_GROUPS = 10_000
MAX_ATTEMPTS = 1_000_000
"""For one answer."""
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
        self.flops = _Float()
        self.tokens = _Float()


class _Float:
    """A sum that loses nothing worth a word, however many it is of: Neumaier 1974. It takes the room of two numbers."""

    def __init__(self) -> None:
        self._sum = self._lost = 0.0

    def add(self, value: float) -> None:
        total = self._sum + value
        larger, smaller = (self._sum, value) if abs(self._sum) >= abs(value) else (value, self._sum)
        self._lost += (larger - total) + smaller
        self._sum = total

    @property
    def value(self) -> float:
        return self._sum + self._lost


class TooMuchUsedError(Exception):
    """More than one answer may hold or take."""

    def __init__(self, what: Literal["groups", "attempts"], most: int) -> None:
        super().__init__(f"more than {most} {what}")
        self.what = what
        self.most = most


def add_up(attempts: Iterable[UsedAttempt], from_ms: int, to_ms: int, by: Sequence[Dimension]) -> list[Usage]:
    """Usage in a window, by group; groups in which nothing ran are absent. Raises as `add_up_all`.

    Args:
        attempts: all that ran in it, and any others.
        from_ms: its start.
        to_ms: its end, which is not part of it.
        by: what groups are told apart by; none for one sum.
    """
    return add_up_all(attempts, from_ms, to_ms, by)[0]


def add_up_all(
    attempts: Iterable[UsedAttempt], from_ms: int, to_ms: int, by: Sequence[Dimension]
) -> tuple[list[Usage], Usage]:
    """`add_up`, and the sum of all groups; in one pass, and in the room of the groups.

    Raises:
        TooMuchUsedError: there are more than `MAX_GROUPS` groups or `MAX_ATTEMPTS` attempts.
    """
    sums: dict[tuple[str, ...], _Sum] = {}
    whole = _Sum()
    for number, one in enumerate(attempts):
        if number == MAX_ATTEMPTS:
            raise TooMuchUsedError("attempts", MAX_ATTEMPTS)
        for start, end in _pieces(max(one.started_ms, from_ms), min(one.ended_ms, to_ms), "day" in by):
            key = tuple(day_of(start) if name == "day" else str(getattr(one, name)) for name in by)
            if key not in sums and len(sums) == MAX_GROUPS:
                raise TooMuchUsedError("groups", MAX_GROUPS)
            for total in (sums.setdefault(key, _Sum()), whole):
                _add(total, one, start, end)
    rows = [_usage(dict(zip(by, key, strict=True)), total) for key, total in sorted(sums.items())]
    return rows, _usage({}, whole)


def _add(total: _Sum, one: UsedAttempt, start: int, end: int) -> None:
    """Add what an attempt took in a part of its time."""
    total.millicpu_ms += (end - start) * one.num_millicpus
    total.gpu_ms += (end - start) * one.num_gpus
    total.flops.add(one.flops * ((end - start) / one.job_ms))
    total.tokens.add(one.tokens * ((end - start) / one.job_ms))
    if start == one.started_ms:
        total.attempts += 1
        total.jobs += one.is_first


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
        flops=total.flops.value,
        tokens=total.tokens.value,
        jobs=total.jobs,
        attempts=total.attempts,
    )
