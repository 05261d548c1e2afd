"""What a replica of the version before, which knew no usage, leaves of it: mended by whoever leads after it.

While one version takes over from the other, the older one may still lead. It ends attempts without a word to these
tables, which would count on for ever, and begins others that would not count at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy import Engine, and_, or_, select, update
from sqlalchemy.orm import Session

from service.ledger.store import job_of_row
from service.ledger.tables import JobRow
from service.ledger.usage import begin_attempt
from service.ledger.usage_tables import JobAttemptRow
from service.records import Job
from service.states import ACTIVE_STATES, JobState

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 60.0
BATCH_ROWS = 500
_ACTIVE = [state.value for state in ACTIVE_STATES]
_SEEN_TO_RUN = [state.value for state in (JobState.RUNNING, JobState.PAUSING, JobState.CANCELLING)]


@dataclass(frozen=True)
class Mended:
    """Attempts that were mended."""

    ended: int = 0
    begun: int = 0


class UsageRepair:
    """Looks now and then, in the rounds of whoever leads."""

    def __init__(
        self,
        engine: Engine,
        guard: Callable[[Session], None] = lambda session: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`guard` begins each transaction; what it raises ends it."""
        self._engine = engine
        self._guard = guard
        self._now = now
        self._due_at = time.monotonic()

    def run(self) -> Mended:
        """Mend a batch, if it is time. After a full batch the next is due at once."""
        if time.monotonic() < self._due_at:
            return Mended()
        with Session(self._engine) as session, session.begin():
            self._guard(session)
            mended = Mended(self._end(session), self._begin(session))
        if max(mended.ended, mended.begun) < BATCH_ROWS:
            self._due_at = time.monotonic() + INTERVAL_SECONDS
        if mended != Mended():
            log.info("usage_mended", ended=mended.ended, begun=mended.begun)
        return mended

    def _end(self, session: Session) -> int:
        """End attempts whose job is over, waits, or is at another attempt."""
        is_left_open = or_(JobRow.state.not_in(_ACTIVE), JobRow.attempt != JobAttemptRow.attempt)
        query = (
            select(JobAttemptRow, JobRow)
            .join(JobRow, JobRow.job_id == JobAttemptRow.job_id)
            .where(JobAttemptRow.ended_ms.is_(None), is_left_open)
            .limit(BATCH_ROWS)
        )
        found = [(row.attempt, row.started_ms, job_of_row(job)) for row, job in session.execute(query)]
        for attempt, started_ms, job in found:
            row = and_(JobAttemptRow.job_id == job.job_id, JobAttemptRow.attempt == attempt)
            end_ms = max(started_ms + 1, _last_seen_ms(job, attempt, started_ms))
            session.execute(update(JobAttemptRow).where(row, JobAttemptRow.ended_ms.is_(None)).values(ended_ms=end_ms))
        return len(found)

    def _begin(self, session: Session) -> int:
        """Begin attempts that run and have no row."""
        has_row = (
            select(JobAttemptRow.attempt)
            .where(JobAttemptRow.job_id == JobRow.job_id, JobAttemptRow.attempt == JobRow.attempt)
            .exists()
        )
        query = select(JobRow).where(JobRow.state.in_(_SEEN_TO_RUN), JobRow.started_at.is_not(None), ~has_row)
        jobs = [job_of_row(row) for row in session.scalars(query.limit(BATCH_ROWS))]
        for job in jobs:
            ran = timedelta(seconds=job.running_seconds if job.attempt <= 1 else 0.0)
            begin_attempt(session, job, job.run_started_at or self._now() - ran)
        return len(jobs)


def _last_seen_ms(job: Job, attempt: int, started_ms: int) -> int:
    """Until when an attempt is known to have run: nobody wrote down when it ended."""
    if attempt != job.attempt:  # a later one has begun since
        began = job.run_started_at
        known = None if began is None else int(began.timestamp() * 1000)
        return started_ms if known is None else min(known, started_ms + int(1000 * job.running_seconds))
    last = job.finished_at or job.heartbeat_seen_at
    return started_ms if last is None else int(last.timestamp() * 1000)
