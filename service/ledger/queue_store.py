"""The queue on SQLAlchemy: who waits and runs, why, quotas, and what owners have used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Engine, bindparam, delete, func, select, update
from sqlalchemy.orm import Session

from service.access.audit import AuditEntry
from service.ledger.access_store import audit_row
from service.ledger.queries import queue_query, waiting_query
from service.ledger.queue_tables import OwnerUsageRow, QuotaRow
from service.ledger.store import job_of_row
from service.ledger.tables import JobRow
from service.queueing.records import Quota, QuotaException, Scope, Wait, WaitReason
from service.queueing.shares import Usage
from service.records import Job
from service.states import ACTIVE_STATES, JobState

_QUOTA_FIELDS = ("max_running_jobs", "max_cpus", "max_gpus")


class SqlQueueStore:
    """`QueueStore` on an engine. As of jobs, no transaction reads before it writes."""

    def __init__(self, engine: Engine, *, guard: Callable[[Session], None] | None = None) -> None:
        """`guard` begins every transaction of whoever acts under a lease; what it raises ends it."""
        self._engine = engine
        self._guard = guard

    def list_queue(self, per_kind: int, limit: int) -> list[Job]:
        """Jobs that wait for a place, to plan for: of each kind the first by age, all owners by turns. Jobs of one
        owner, project, priority and demand are of one kind.
        """
        with Session(self._engine) as session:
            return [job_of_row(row) for row in session.scalars(queue_query(per_kind, limit))]

    def list_waiting(self, per_owner: int, limit: int, projects: frozenset[str] | None) -> list[Job]:
        """Jobs that wait for a place, to be shown, of some projects or of all: of each owner the first in the queue."""
        with Session(self._engine) as session:
            return [job_of_row(row) for row in session.scalars(waiting_query(per_owner, limit, projects))]

    def list_active(self) -> list[Job]:
        """Jobs that hold a place, oldest first."""
        query = select(JobRow).where(JobRow.state.in_([state.value for state in ACTIVE_STATES]))
        with Session(self._engine) as session:
            return [job_of_row(row) for row in session.scalars(query.order_by(JobRow.created_at, JobRow.job_id))]

    def save_waits(self, waits: Sequence[Wait]) -> None:
        """Write down why jobs wait; of one that has left the queue meanwhile nothing is changed."""
        if not waits:
            return
        statement = (
            update(JobRow.__table__)  # type: ignore[arg-type]
            .where(JobRow.job_id == bindparam("of_job"), JobRow.state == JobState.QUEUED.value)
            .values(
                waiting_reason=bindparam("reason"),
                waiting_message=bindparam("message"),
                queue_position=bindparam("position"),
            )
        )
        rows = [
            {"of_job": one.job_id, "reason": one.reason.value, "message": one.message, "position": one.position}
            for one in waits
        ]
        with self._writing() as session:
            session.execute(statement, rows)

    def usages(self) -> Mapping[str, Usage]:
        """What owners have used, each as of its own moment."""
        with Session(self._engine) as session:
            rows = session.scalars(select(OwnerUsageRow))
            return {row.owner: Usage(row.owner, row.cpu_seconds, row.gpu_seconds, row.as_of) for row in rows}

    def save_usages(self, usages: Sequence[Usage]) -> None:
        """Replace what some owners have used."""
        with self._writing() as session:
            for usage in usages:
                values = asdict(usage)
                statement = update(OwnerUsageRow).where(OwnerUsageRow.owner == usage.owner).values(values)
                if not session.execute(statement.returning(OwnerUsageRow.owner)).all():
                    session.add(OwnerUsageRow(**values))

    def list_quotas(self) -> Sequence[QuotaException]:
        """All exceptions, owners first, by name."""
        with Session(self._engine) as session:
            rows = session.scalars(select(QuotaRow).order_by(QuotaRow.scope, QuotaRow.name))
            return [_exception(row) for row in rows]

    def find_quota(self, scope: Scope, name: str) -> QuotaException | None:
        """The exception of one owner or project."""
        with Session(self._engine) as session:
            row = session.get(QuotaRow, (scope, name))
            return None if row is None else _exception(row)

    def put_quota(self, exception: QuotaException, audit: AuditEntry) -> None:
        """Add or replace an exception."""
        key = (QuotaRow.scope == exception.scope) & (QuotaRow.name == exception.name)
        values = {name: getattr(exception.quota, name) for name in _QUOTA_FIELDS}
        values |= {"set_at": exception.set_at, "set_by": exception.set_by}
        with self._writing() as session:
            if not session.execute(update(QuotaRow).where(key).values(values).returning(QuotaRow.name)).all():
                session.add(QuotaRow(scope=exception.scope, name=exception.name, **values))
                session.flush()
            session.add(audit_row(audit))
        if audit.on_kept is not None:
            audit.on_kept()

    def delete_quota(self, scope: Scope, name: str, audit: AuditEntry) -> bool:
        """Take an exception away; False where there is none, and then nothing is kept."""
        statement = delete(QuotaRow).where(QuotaRow.scope == scope, QuotaRow.name == name)
        with self._writing() as session:
            found = bool(session.execute(statement.returning(QuotaRow.name)).all())
            if found:
                session.add(audit_row(audit))
        if found and audit.on_kept is not None:
            audit.on_kept()
        return found

    def waiting_figures(self) -> Mapping[str, tuple[int, datetime]]:
        """By reason, how many jobs wait for it and since when the first of them does."""
        since = func.coalesce(JobRow.queued_at, JobRow.created_at, type_=JobRow.created_at.type)
        query = (
            select(JobRow.waiting_reason, func.count(), func.min(since, type_=JobRow.created_at.type))
            .where(JobRow.state == JobState.QUEUED.value)
            .group_by(JobRow.waiting_reason)
        )
        with Session(self._engine) as session:
            found = session.execute(query).all()
        figures: dict[str, tuple[int, datetime]] = {}
        for reason, count, first in found:
            known = figures.get(reason or WaitReason.BEHIND)
            earlier = (count, first) if known is None else (known[0] + count, min(known[1], first))
            figures[reason or WaitReason.BEHIND] = earlier
        return figures

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with Session(self._engine) as session, session.begin():
            if self._guard is not None:
                self._guard(session)
            yield session


def _exception(row: QuotaRow) -> QuotaException:
    quota = Quota(row.max_running_jobs, row.max_cpus, row.max_gpus)
    scope: Scope = "owner" if row.scope == "owner" else "project"
    return QuotaException(scope, row.name, quota, row.set_at, row.set_by)
