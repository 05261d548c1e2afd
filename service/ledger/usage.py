"""What attempts took, noted in the transactions that move their jobs, and read again to be added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog
from sqlalchemy import Engine, case, func, literal, or_, select, update
from sqlalchemy.orm import Session, aliased

from pipelines.specs.documents import JobResult
from service.jobs.work import Resources, Work, resources_of, work_of
from service.ledger.tables import JobRow
from service.ledger.usage_tables import JobAttemptRow, JobWorkRow
from service.records import Job
from service.shelf.usage import AttemptTimes, UsedAttempt
from service.states import ACTIVE_STATES

log = structlog.get_logger(__name__)

_READ_ROWS = 1000
_Known = TypeVar("_Known", Resources, Work)


def note_usage(session: Session, job: Job, changes: Mapping[str, Any], now: datetime) -> None:
    """Note what a change to a job says of its attempt: that it began to run, what it computed, that it is over.

    Args:
        session: of the transaction that makes the change.
        job: as it was.
        changes: its new values.
        now: of whoever changes it.
    """
    # Said when Ray was seen to run it, or to have run it between two looks.
    if "started_at" in changes:
        begin_attempt(session, job, now)
    progress, result = changes.get("progress"), changes.get("result")
    if progress is not None or result is not None:
        work = _reckoned(lambda: work_of(job.spec_json, progress or job.progress, result), Work())
        if work.tokens or work.flops:
            statement = update(JobWorkRow).where(JobWorkRow.job_id == job.job_id)
            session.execute(statement.values(tokens=work.tokens, flops=work.flops))
    state = changes.get("state", job.state)
    if job.attempt and (state not in ACTIVE_STATES or changes.get("attempt", job.attempt) != job.attempt):
        _end(session, job, _end_of(job, result, now))


def begin_attempt(session: Session, job: Job, at: datetime) -> None:
    """Note that the job's attempt began to run; nothing happens where that was noted before."""
    if session.get(JobAttemptRow, (job.job_id, job.attempt)) is not None:
        return
    if session.get(JobWorkRow, job.job_id) is None:
        held = _reckoned(lambda: resources_of(job.spec_json), Resources(0, 0))
        row = JobWorkRow(
            job_id=job.job_id, num_millicpus=held.num_millicpus, num_gpus=held.num_gpus, tokens=0, flops=0.0
        )
        session.add(row)
    session.add(JobAttemptRow(job_id=job.job_id, attempt=job.attempt, started_ms=_milliseconds(at)))
    session.flush()


def _end(session: Session, job: Job, end_ms: int) -> None:
    """No attempt is shorter than a millisecond, so that there is time to spread its work over."""
    least = JobAttemptRow.started_ms + 1
    statement = update(JobAttemptRow).where(
        JobAttemptRow.job_id == job.job_id, JobAttemptRow.attempt == job.attempt, JobAttemptRow.ended_ms.is_(None)
    )
    session.execute(statement.values(ended_ms=case((least > end_ms, least), else_=literal(end_ms))))


def _end_of(job: Job, result: JobResult | None, now: datetime) -> int:
    """When it was seen to be over or, where its own last word names an earlier moment, that."""
    said = result.finished_at if result is not None and result.attempt == job.attempt else None
    if said is not None and said.tzinfo is not None:
        return _milliseconds(min(now, said))
    return _milliseconds(now)


def _reckoned(reckon: Callable[[], _Known], otherwise: _Known) -> _Known:
    """No job is held up because its usage cannot be reckoned."""
    try:
        return reckon()
    except (ValueError, ArithmeticError, RecursionError) as error:
        log.warning("usage_not_reckoned", reason=str(error)[:300])
        return otherwise


class SqlUsageStore:
    """`UsageStore` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def used_attempts(
        self, from_ms: int, to_ms: int, now_ms: int, projects: frozenset[str] | None
    ) -> Iterator[UsedAttempt]:
        """Attempts that ran in a window, of some projects; None for all."""
        one, other = JobAttemptRow, aliased(JobAttemptRow)
        least = other.started_ms + 1
        end = func.coalesce(other.ended_ms, case((least > now_ms, least), else_=literal(now_ms)))
        job_ms = select(func.sum(end - other.started_ms)).where(other.job_id == one.job_id).scalar_subquery()
        first = select(func.min(other.attempt)).where(other.job_id == one.job_id).scalar_subquery()
        query = (
            select(one, JobRow.project, JobRow.owner, JobRow.kind, JobWorkRow, job_ms, first)
            .join(JobRow, JobRow.job_id == one.job_id)
            .join(JobWorkRow, JobWorkRow.job_id == one.job_id)
            .where(one.started_ms < to_ms, or_(one.ended_ms.is_(None), one.ended_ms > from_ms))
        )
        if projects is not None:
            query = query.where(JobRow.project.in_(sorted(projects)))
        with Session(self._engine) as session:
            for row, project, owner, kind, work, total, number in session.execute(query).yield_per(_READ_ROWS):
                yield UsedAttempt(
                    job_id=row.job_id,
                    project=project,
                    owner=owner,
                    kind=kind,
                    started_ms=row.started_ms,
                    ended_ms=max(row.started_ms + 1, now_ms) if row.ended_ms is None else row.ended_ms,
                    is_first=row.attempt == number,
                    num_millicpus=work.num_millicpus,
                    num_gpus=work.num_gpus,
                    job_ms=int(total),
                    tokens=work.tokens,
                    flops=work.flops,
                )

    def attempts_of(self, job_id: str) -> Sequence[AttemptTimes]:
        """Attempts of a job that were seen to run, in their order."""
        query = select(JobAttemptRow).where(JobAttemptRow.job_id == job_id).order_by(JobAttemptRow.attempt)
        with Session(self._engine) as session:
            return [
                AttemptTimes(
                    row.attempt, _moment(row.started_ms), None if row.ended_ms is None else _moment(row.ended_ms)
                )
                for row in session.scalars(query)
            ]


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
