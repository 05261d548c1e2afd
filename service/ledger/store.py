"""The table of jobs on SQLAlchemy: SQLite for one machine, PostgreSQL for a team."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Engine, and_, func, or_, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from pipelines.specs.documents import JobResult, Progress
from service.access.audit import AuditEntry
from service.interfaces import DuplicateKeyError, IdempotencyKey, JobFilter, StaleJobError
from service.ledger.access_store import audit_row
from service.ledger.tables import ClusterStatusRow, IdempotencyKeyRow, JobRow
from service.records import ClusterStatus, Job, JobFailure
from service.states import ACTIVE_STATES, TERMINAL_STATES, JobState, can_move

_DOCUMENTS: Mapping[str, type[BaseModel]] = {"progress": Progress, "result": JobResult, "failure": JobFailure}
_JOB_FIELDS = tuple(field.name for field in fields(Job))


class SqlJobStore:
    """`JobStore` on an engine.

    No transaction reads before it writes: on SQLite that would let two of them wait for each other in vain.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def insert(self, job: Job, key: IdempotencyKey | None = None, audit: AuditEntry | None = None) -> None:
        """Add a job, and with it the key of the request that made it and its row of the audit log.

        Raises:
            DuplicateKeyError: the key is taken; nothing was added.
        """
        try:
            with Session(self._engine) as session, session.begin():
                session.add(JobRow(**_columns({name: getattr(job, name) for name in _JOB_FIELDS})))
                session.flush()
                if key is not None:
                    session.add(IdempotencyKeyRow(key=key.key, body_sha256=key.body_sha256, job_id=job.job_id))
                if audit is not None:
                    session.add(audit_row(audit))
        except IntegrityError as error:
            if key is not None and self.find_by_key(key.key) is not None:
                raise DuplicateKeyError(key.key) from error
            raise

    def find_by_key(self, key: str) -> tuple[IdempotencyKey, Job] | None:
        """The job a key has made, with what the request was."""
        query = select(IdempotencyKeyRow, JobRow).join(JobRow, JobRow.job_id == IdempotencyKeyRow.job_id)
        with Session(self._engine) as session:
            found = session.execute(query.where(IdempotencyKeyRow.key == key)).first()
            return None if found is None else (IdempotencyKey(found[0].key, found[0].body_sha256), _job(found[1]))

    def get(self, job_id: str) -> Job | None:
        """One job."""
        with Session(self._engine) as session:
            row = session.get(JobRow, job_id)
            return None if row is None else _job(row)

    def page(self, wanted: JobFilter) -> list[Job]:
        """Jobs, newest first."""
        query = select(JobRow).order_by(JobRow.created_at.desc(), JobRow.job_id.desc()).limit(wanted.limit)
        if wanted.states:
            query = query.where(JobRow.state.in_([state.value for state in wanted.states]))
        if wanted.name is not None:
            query = query.where(JobRow.name == wanted.name)
        if wanted.kind is not None:
            query = query.where(JobRow.kind == wanted.kind)
        if wanted.projects is not None:
            query = query.where(JobRow.project.in_(sorted(wanted.projects)))
        if wanted.owner is not None:
            query = query.where(JobRow.owner == wanted.owner)
        if wanted.before is not None:
            query = query.where(tuple_(JobRow.created_at, JobRow.job_id) < tuple_(*wanted.before))
        with Session(self._engine) as session:
            return [_job(row) for row in session.scalars(query)]

    def request_cancel(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should stop, once and only if it is not over; the job as it then is. The row of the audit log
        is added where it was noted.
        """
        statement = update(JobRow).where(
            JobRow.job_id == job_id,
            JobRow.cancel_requested_at.is_(None),
            JobRow.state.not_in([state.value for state in TERMINAL_STATES]),
        )
        with Session(self._engine) as session, session.begin():
            noted = session.execute(statement.values(cancel_requested_at=at).returning(JobRow.job_id)).all()
            if noted and audit is not None:
                session.add(audit_row(audit))
        return self.get(job_id)

    def list_unsettled(self) -> list[Job]:
        """Jobs the reconciler must look at, oldest first."""
        active = [state.value for state in ACTIVE_STATES]
        terminal = [state.value for state in TERMINAL_STATES]
        query = (
            select(JobRow)
            .where(
                or_(
                    JobRow.state.in_(active),
                    and_(JobRow.state == JobState.QUEUED.value, JobRow.cancel_requested_at.is_not(None)),
                    and_(JobRow.state.in_(terminal), JobRow.is_log_saved.is_(False)),
                )
            )
            .order_by(JobRow.created_at, JobRow.job_id)
        )
        with Session(self._engine) as session:
            return [_job(row) for row in session.scalars(query)]

    def list_queued(self, limit: int) -> list[Job]:
        """Jobs that wait, oldest first."""
        query = select(JobRow).where(JobRow.state == JobState.QUEUED.value, JobRow.cancel_requested_at.is_(None))
        with Session(self._engine) as session:
            return [_job(row) for row in session.scalars(query.order_by(JobRow.created_at, JobRow.job_id).limit(limit))]

    def count_active(self) -> int:
        """Jobs that hold a place of `max_running_jobs`."""
        query = select(func.count()).select_from(JobRow).where(JobRow.state.in_([s.value for s in ACTIVE_STATES]))
        with Session(self._engine) as session:
            return session.scalar(query) or 0

    def update(self, job: Job, **changes: Any) -> Job:
        """Change fields of a job.

        Raises:
            StaleJobError: state or attempt are no longer those of `job`.
        """
        after = changes.get("state", job.state)
        assert after == job.state or can_move(job.state, after), f"{job.state} never becomes {after}"
        statement = update(JobRow).where(
            JobRow.job_id == job.job_id, JobRow.state == job.state.value, JobRow.attempt == job.attempt
        )
        with Session(self._engine) as session, session.begin():
            # `RETURNING` rather than a count: drivers disagree on counts.
            touched = session.execute(statement.values(**_columns(changes)).returning(JobRow.job_id)).all()
        if not touched:
            raise StaleJobError(job.job_id)
        return replace(job, **changes)

    def cluster_status(self) -> ClusterStatus | None:
        """What the reconciler last saw."""
        with Session(self._engine) as session:
            row = session.get(ClusterStatusRow, 1)
            if row is None:
                return None
            return ClusterStatus(**{field.name: getattr(row, field.name) for field in fields(ClusterStatus)})

    def save_cluster_status(self, status: ClusterStatus) -> None:
        """Keep what the reconciler sees."""
        values = asdict(status)
        with Session(self._engine) as session, session.begin():
            statement = update(ClusterStatusRow).where(ClusterStatusRow.id == 1).values(**values)
            if not session.execute(statement.returning(ClusterStatusRow.id)).all():
                session.add(ClusterStatusRow(id=1, **values))

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job as its columns hold them."""
    return {
        name: value.model_dump_json() if isinstance(value, BaseModel) else str(value) if name == "state" else value
        for name, value in values.items()
    }


def _job(row: JobRow) -> Job:
    values = {name: getattr(row, name) for name in _JOB_FIELDS}
    values["state"] = JobState(row.state)
    for name, model in _DOCUMENTS.items():
        if values[name] is not None:
            values[name] = model.model_validate_json(values[name])
    return Job(**values)
