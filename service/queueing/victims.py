"""Which jobs make room for one of higher priority. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import combinations

from service.queueing.records import Active

MAX_EXACT = 2
"""Up to so many, every set is tried; beyond, jobs are added one by one and those left out again that are not needed."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def choose_victims(candidates: Sequence[Active], makes_room: Callable[[Sequence[Active]], bool]) -> tuple[Active, ...]:
    """The fewest that make room; of sets as small the lowest priorities, and of these the last started. Empty where
    all of them together do not.
    """
    ordered = sorted(candidates, key=lambda job: job.job_id)
    ordered.sort(key=lambda job: job.run_started_at or _LONG_AGO, reverse=True)
    ordered.sort(key=lambda job: job.priority)
    if not makes_room(ordered):
        return ()
    for number in range(1, MAX_EXACT + 1):
        for chosen in combinations(ordered, number):
            if makes_room(chosen):
                return chosen
    return _added_up(ordered, makes_room)


def _added_up(ordered: Sequence[Active], makes_room: Callable[[Sequence[Active]], bool]) -> tuple[Active, ...]:
    number = next(n for n in range(1, len(ordered) + 1) if makes_room(ordered[:n]))
    chosen = list(ordered[:number])
    for job in list(reversed(chosen)):
        fewer = [one for one in chosen if one is not job]
        if makes_room(fewer):
            chosen = fewer
    return tuple(chosen)
