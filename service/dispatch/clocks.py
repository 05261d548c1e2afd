"""How long jobs were seen in a state. Time in which nobody looked, or Ray said nothing, does not count.

So no job is given up because the service was down, the machine slept, or Ray was out of reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from service.records import Job
from service.settings import Settings
from service.states import JobState

SAVE_SECONDS = 10.0
"""Time counted before it is written down: a reconciler that is killed forgets no more of it."""
MIN_GAP_SECONDS = 60.0


@dataclass
class _Seen:
    of: tuple[JobState, int]
    at: datetime | None
    unsaved: float = 0.0


class LookClock:
    """Adds up the time between looks at a job in one state and attempt."""

    def __init__(self, now: Callable[[], datetime], settings: Settings) -> None:
        self._now = now
        # What is further apart than this was not watched in between: the process or the whole machine stood still.
        self._max_gap = max(MIN_GAP_SECONDS, 10.0 * settings.reconcile_interval_seconds)
        self._seen: dict[str, _Seen] = {}

    def look(self, job: Job) -> float:
        """Note a look that told something; seconds that have been counted and not been saved."""
        now = self._now()
        seen = self._seen.get(job.job_id)
        if seen is None or seen.of != (job.state, job.attempt):
            self._seen[job.job_id] = _Seen((job.state, job.attempt), now)
            return 0.0
        if seen.at is not None:
            seen.unsaved += min(max((now - seen.at).total_seconds(), 0.0), self._max_gap)
        seen.at = now
        return seen.unsaved

    def miss(self, job: Job) -> None:
        """Note that nothing could be seen: the time until the next look does not count."""
        seen = self._seen.get(job.job_id)
        if seen is not None:
            seen.at = None

    def saved(self, job: Job) -> None:
        """What has been counted is written down."""
        seen = self._seen.get(job.job_id)
        if seen is not None:
            seen.unsaved = 0.0

    def forget(self, job: Job) -> None:
        """The job is no longer watched."""
        self._seen.pop(job.job_id, None)

    def forget_all(self) -> None:
        """Another replica watches from now on, and counts what it sees."""
        self._seen.clear()
