"""Events on SQLAlchemy: written by `SqlJobStore` within its own transactions, read by feeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Select, delete, func, insert, select, update
from sqlalchemy.orm import Session

from service.feeds.records import EventPage, EventType, JobEvent, Told
from service.ledger.feed_tables import EventCounterRow, EventRow
from service.ledger.outbox import write_outbox
from service.ledger.tables import JobRow


def write_events(session: Session, job_id: str, project: str, told: Sequence[Told]) -> None:
    """Add events of a job of a project to a transaction, as its last statements.

    Numbers come from a counter row, whose lock is held to the end of the transaction: so they are given out in the
    order of the commits, without gaps. A reader that has seen number n has seen all before it. With a sequence of
    PostgreSQL's a transaction can commit after one with a larger number, and a reader of `seq > n` would never see it.
    The counter comes last in every transaction, so two of them cannot wait for each other; after it come only rows of
    its own, those for webhooks among them.
    """
    if not told:
        return
    count = update(EventCounterRow).where(EventCounterRow.id == 1)
    counted = count.values(last_seq=EventCounterRow.last_seq + len(told)).returning(EventCounterRow.last_seq)
    first = session.execute(counted).scalar_one() - len(told) + 1
    at = datetime.now(UTC)
    rows = [
        {
            "seq": seq,
            "at": at,
            "job_id": job_id,
            "project": project,
            "type": event.type.value,
            "payload": json.dumps(event.payload, allow_nan=False),
        }
        for seq, event in enumerate(told, first)
    ]
    session.execute(insert(EventRow), rows)
    write_outbox(session, rows)


class SqlEventStore:
    """`EventStore` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read_events(
        self, after: int, limit: int, job_id: str | None = None, projects: frozenset[str] | None = None
    ) -> EventPage:
        """Events with larger numbers, of one job or of all, of some projects or of all, at most `limit`."""
        query = select(*_COLUMNS).where(EventRow.seq > after).order_by(EventRow.seq).limit(limit)
        if job_id is not None:
            query = query.where(EventRow.job_id == job_id)
        # Each reading sees what is committed then. The last number is read before the events and the pruned one after
        # them: whatever is written or deleted in between, the page claims too little and never too much.
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            pruned_seq, last_seq = _bounds(connection.execute(_BOUNDS).one())
            if last_seq <= after:
                return EventPage((), pruned_seq, last_seq)
            if projects is None:
                rows: Sequence[Any] = connection.execute(query).all()
            else:
                rows = _rows_of_projects(connection, query.where(EventRow.seq <= last_seq), projects)[:limit]
            pruned_seq, _ = _bounds(connection.execute(_BOUNDS).one())
        events = tuple(
            JobEvent(r.seq, r.at, r.job_id, r.project, EventType(r.type), json.loads(r.payload)) for r in rows
        )
        return EventPage(events, pruned_seq, last_seq)

    def prune_events(self, before: datetime, keep: int, limit: int) -> int:
        """Delete the oldest events, at most `limit`; how many."""
        with Session(self._engine) as session:
            pruned_seq, last_seq = _bounds(session.execute(_BOUNDS).one())
            query = select(EventRow.seq, EventRow.at).where(EventRow.seq > pruned_seq)
            oldest = session.execute(query.order_by(EventRow.seq).limit(limit)).all()
        upto = pruned_seq
        for seq, at in oldest:
            if at >= before and seq > last_seq - keep:
                break
            upto = seq
        if upto == pruned_seq:
            return 0
        # A transaction of its own, which does not read before it writes.
        with Session(self._engine) as session, session.begin():
            note = update(EventCounterRow).where(EventCounterRow.id == 1, EventCounterRow.pruned_seq < upto)
            session.execute(note.values(pruned_seq=upto))
            session.execute(delete(EventRow).where(EventRow.seq <= upto))
        return upto - pruned_seq


_JOBS_PROJECT = select(JobRow.project).where(JobRow.job_id == EventRow.job_id).scalar_subquery()
_COLUMNS: tuple[Any, ...] = (
    EventRow.seq,
    EventRow.at,
    EventRow.job_id,
    func.coalesce(EventRow.project, _JOBS_PROJECT, "").label("project"),
    EventRow.type,
    EventRow.payload,
)


def _rows_of_projects(connection: Connection, query: Select[*tuple[Any, ...]], projects: frozenset[str]) -> list[Any]:
    """Those whose project is written with them, and those where the job alone tells it; each from the index. Both are
    bounded by one last number, so nothing can come between the two readings.
    """
    named = query.where(EventRow.project.in_(sorted(projects)))
    unnamed = query.where(EventRow.project.is_(None), _JOBS_PROJECT.in_(sorted(projects)))
    rows = [*connection.execute(named), *connection.execute(unnamed)]
    return sorted(rows, key=lambda row: row.seq)


_BOUNDS = select(EventCounterRow.pruned_seq, EventCounterRow.last_seq).where(EventCounterRow.id == 1)


def _bounds(row: Sequence[int]) -> tuple[int, int]:
    return row[0], row[1]
