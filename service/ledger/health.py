"""What is asked of the database itself: figures for metrics, and whether it can be relied on."""

from __future__ import annotations

from sqlalchemy import Engine, func, select, update
from sqlalchemy.orm import Session

from service.feeds.records import JobFigures
from service.ledger.feed_tables import LeaseRow
from service.ledger.lease import database_seconds
from service.ledger.tables import JobRow
from service.ledger.versions import database_revision, is_newer, newest_revision
from service.states import JobState

_PROBE = "probe"


class SqlLedgerHealth:
    """`LedgerHealth` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._newest = newest_revision()

    def job_figures(self) -> JobFigures:
        """Jobs by state, from the index over states."""
        with Session(self._engine) as session:
            rows = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state)).all()
            query = select(func.min(JobRow.created_at)).where(JobRow.state == JobState.QUEUED.value)
            return JobFigures({JobState(state): count for state, count in rows}, session.scalar(query))

    def check_writable(self) -> None:
        """Write something of no consequence."""
        with Session(self._engine) as session, session.begin():
            now = database_seconds(self._engine)
            session.execute(update(LeaseRow).where(LeaseRow.name == _PROBE).values(expires_at=now))

    def missing_migrations(self) -> bool:
        """Whether the tables are of an older form than this version needs; those of a later version are as good."""
        revision = database_revision(self._engine)
        return revision != self._newest and not is_newer(revision)
