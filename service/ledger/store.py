"""The table of jobs on SQLAlchemy: SQLite for one machine, PostgreSQL for a team."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Engine, Insert, Update, bindparam, delete, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from pipelines.specs.documents import JobResult, Progress
from service.access.audit import AuditEntry
from service.feeds.telling import ProgressGate, told_of_insert, told_of_update, told_of_wish
from service.interfaces import DuplicateKeyError, IdempotencyKey, JobFilter, StaleJobError
from service.ledger.access_store import audit_row
from service.ledger.events import write_events
from service.ledger.queries import page_query, queued_query, unsettled_query
from service.ledger.tables import ClusterStatusRow, IdempotencyKeyRow, JobLabelRow, JobRow
from service.ledger.usage import note_usage
from service.queueing.demand import Demand
from service.records import ClusterStatus, Job, JobFailure, JobLimits
from service.states import ACTIVE_STATES, TERMINAL_STATES, JobState, can_move

_DOCUMENTS: Mapping[str, type[BaseModel]] = {
    "progress": Progress,
    "result": JobResult,
    "failure": JobFailure,
    "demand": Demand,
}
_JOB_FIELDS = tuple(field.name for field in fields(Job))
_TERMINAL = [state.value for state in TERMINAL_STATES]


class SqlJobStore:
    """`JobStore` on an engine.

    No transaction reads before it writes: on SQLite that would let two of them wait for each other in vain.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        guard: Callable[[Session], None] | None = None,
        gate: ProgressGate | None = None,
        on_update: Callable[[Job, Mapping[str, Any]], None] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Of the store of whoever acts under a lease.

        Args:
            engine: of the database.
            guard: begins every transaction that writes; what it raises ends it.
            gate: how often a job's progress is an event; always, when absent.
            on_update: told of each change to a job after its commit, with the job as it was.
            now: by which attempts begin and end.
        """
        self._engine = engine
        self._guard = guard
        self._gate = gate or ProgressGate(0.0)
        self._on_update = on_update
        self._now = now

    def insert(self, job: Job, key: IdempotencyKey | None = None, audit: AuditEntry | None = None) -> None:
        """Add a job, and with it the key of the request that made it and its row of the audit log.

        Raises:
            DuplicateKeyError: the key is taken; nothing was added.
        """
        try:
            with self._writing() as session:
                session.add(JobRow(**_columns({name: getattr(job, name) for name in _JOB_FIELDS})))
                session.flush()
                for label, value in job.labels.items():
                    session.add(JobLabelRow(job_id=job.job_id, key=label, value=value, created_at=job.created_at))
                if key is not None:
                    session.add(IdempotencyKeyRow(key=key.key, body_sha256=key.body_sha256, job_id=job.job_id))
                    session.flush()
                _add_entry(session, audit)
                write_events(session, job.job_id, job.project, told_of_insert(job))
            _say_kept(audit)
        except IntegrityError as error:
            if key is not None and self.find_by_key(key.key) is not None:
                raise DuplicateKeyError(key.key) from error
            raise

    def find_by_key(self, key: str) -> tuple[IdempotencyKey, Job] | None:
        """The job a key has made, with what the request was."""
        query = select(IdempotencyKeyRow, JobRow).join(JobRow, JobRow.job_id == IdempotencyKeyRow.job_id)
        with Session(self._engine) as session:
            found = session.execute(query.where(IdempotencyKeyRow.key == key)).first()
            return None if found is None else (IdempotencyKey(found[0].key, found[0].body_sha256), job_of_row(found[1]))

    def get(self, job_id: str) -> Job | None:
        """One job."""
        with Session(self._engine) as session:
            row = session.get(JobRow, job_id)
            return None if row is None else job_of_row(row)

    def page(self, wanted: JobFilter) -> list[Job]:
        """Jobs, newest first."""
        with Session(self._engine) as session:
            return [job_of_row(row) for row in session.scalars(page_query(wanted))]

    def request_cancel(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should stop, once and only if it is not over; the job as it then is. The row of the audit log
        is added where it was noted.
        """
        statement = update(JobRow).where(
            JobRow.job_id == job_id,
            JobRow.cancel_requested_at.is_(None),
            JobRow.state.not_in(_TERMINAL),
        )
        return self._wish(job_id, "cancel", statement.values(cancel_requested_at=at), audit)

    def request_kill(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should end at once, and that it should stop; the job as it then is."""
        statement = update(JobRow).where(
            JobRow.job_id == job_id, JobRow.kill_requested_at.is_(None), JobRow.state.not_in(_TERMINAL)
        )
        asked = func.coalesce(JobRow.cancel_requested_at, bindparam("at", at, type_=JobRow.cancel_requested_at.type))
        return self._wish(job_id, "kill", statement.values(kill_requested_at=at, cancel_requested_at=asked), audit)

    def request_pause(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should pause, unless it is over or to be cancelled; the job as it then is."""
        statement = update(JobRow).where(
            JobRow.job_id == job_id,
            JobRow.pause_requested_at.is_(None),
            JobRow.cancel_requested_at.is_(None),
            JobRow.state.not_in(_TERMINAL),
        )
        return self._wish(job_id, "pause", statement.values(pause_requested_at=at), audit)

    def withdraw_pause(self, job_id: str, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should no longer pause, unless it is over; the job as it then is."""
        statement = update(JobRow).where(
            JobRow.job_id == job_id, JobRow.pause_requested_at.is_not(None), JobRow.state.not_in(_TERMINAL)
        )
        return self._wish(job_id, "resume", statement.values(pause_requested_at=None), audit)

    def edit(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        notes: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Job | None:
        """Change what people say of a job; None leaves a field as it is. The job as it then is."""
        changes = {"priority": priority, "labels": labels, "notes": notes}
        given = {name: value for name, value in changes.items() if value is not None}
        if not given:
            return self.get(job_id)
        with self._writing() as session:
            # The row first: whoever edits the same job meanwhile waits for it, and then finds all of this.
            statement = update(JobRow).where(JobRow.job_id == job_id).values(**_columns(given))
            if not session.execute(statement.returning(JobRow.job_id)).all():
                return None
            if labels is not None:
                session.execute(delete(JobLabelRow).where(JobLabelRow.job_id == job_id))
                for key, value in labels.items():
                    session.execute(_insert_label(job_id, key, value))
            _add_entry(session, audit)
        _say_kept(audit)
        return self.get(job_id)

    def set_archived(self, job_id: str, is_archived: bool, audit: AuditEntry | None = None) -> Job | None:
        """Take a job that is over out of lists, or put it back; the job as it then is."""
        statement = update(JobRow).where(
            JobRow.job_id == job_id, JobRow.state.in_(_TERMINAL), JobRow.is_archived != is_archived
        )
        with self._writing() as session:
            changed = session.execute(statement.values(is_archived=is_archived).returning(JobRow.job_id)).all()
            if changed:
                _add_entry(session, audit)
        if changed:
            _say_kept(audit)
        return self.get(job_id)

    def list_unsettled(self) -> list[Job]:
        """Jobs the reconciler must look at, oldest first."""
        with Session(self._engine) as session:
            return [job_of_row(row) for row in session.scalars(unsettled_query())]

    def list_queued(self, limit: int) -> list[Job]:
        """Jobs that wait, the highest priority first, of equals the oldest."""
        with Session(self._engine) as session:
            return [job_of_row(row) for row in session.scalars(queued_query().limit(limit))]

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
        with self._writing() as session:
            # `RETURNING` rather than a count: drivers disagree on counts.
            touched = session.execute(statement.values(**_columns(changes)).returning(JobRow.job_id)).all()
            if not touched:
                raise StaleJobError(job.job_id)
            note_usage(session, job, changes, self._now())
            write_events(session, job.job_id, job.project, told_of_update(job, changes, self._gate))
        if self._on_update is not None:
            self._on_update(job, changes)
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
        with self._writing() as session:
            statement = update(ClusterStatusRow).where(ClusterStatusRow.id == 1).values(**values)
            if not session.execute(statement.returning(ClusterStatusRow.id)).all():
                session.add(ClusterStatusRow(id=1, **values))

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        """A transaction that writes."""
        with Session(self._engine) as session, session.begin():
            if self._guard is not None:
                self._guard(session)
            yield session

    def _wish(self, job_id: str, wish: str, statement: Update, audit: AuditEntry | None) -> Job | None:
        """Note a wish, and tell and keep a record of it if that changed the row."""
        with self._writing() as session:
            project = session.execute(statement.returning(JobRow.project)).scalar_one_or_none()
            if project is not None:
                _add_entry(session, audit)
                write_events(session, job_id, project, told_of_wish(wish))
        if project is not None:
            _say_kept(audit)
        return self.get(job_id)


def _add_entry(session: Session, audit: AuditEntry | None) -> None:
    """Add a row to the audit log, now: events are the last that a transaction writes."""
    if audit is not None:
        session.add(audit_row(audit))
        session.flush()


def _say_kept(audit: AuditEntry | None) -> None:
    """After the commit: whoever asked for the row knows that it is there."""
    if audit is not None and audit.on_kept is not None:
        audit.on_kept()


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job as its columns hold them."""
    columns = {name: _column(name, value) for name, value in values.items() if name != "priority"}
    return columns | ({"queue_rank": -values["priority"]} if "priority" in values else {})


def _column(name: str, value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if name in ("labels", "resolved_aliases", "adopted_submissions"):
        return json.dumps(dict(value), sort_keys=True)
    return str(value) if name == "state" else value


def _insert_label(job_id: str, key: str, value: str) -> Insert:
    """With the job's own time, which is read where it is written."""
    known = select(literal(job_id), literal(key), literal(value), JobRow.created_at).where(JobRow.job_id == job_id)
    return insert(JobLabelRow).from_select(["job_id", "key", "value", "created_at"], known)


def job_of_row(row: JobRow) -> Job:
    """The job that a row is of."""
    values: dict[str, Any] = {name: getattr(row, name) for name in _JOB_FIELDS if name != "priority"}
    values["priority"] = -row.queue_rank
    values["state"] = JobState(row.state)
    values["labels"] = json.loads(row.labels or "{}")
    values["resolved_aliases"] = json.loads(row.resolved_aliases or "{}")
    values["adopted_submissions"] = json.loads(row.adopted_submissions or "{}")
    values["notes"] = row.notes or ""
    values["limits"] = JobLimits.model_validate_json(row.limits or "{}")
    for name, model in _DOCUMENTS.items():
        if values[name] is not None:
            values[name] = model.model_validate_json(values[name])
    return Job(**values)
