"""What is asked of the table of jobs. Each is answered from an index, of a million jobs too; a test holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Select, String, and_, exists, false, func, or_, select, tuple_, union_all
from sqlalchemy.orm import aliased

from service.interfaces import JobFilter
from service.ledger.tables import JobLabelRow, JobRow, UtcDateTime
from service.states import ACTIVE_STATES, TERMINAL_STATES, JobState

MAX_BRANCHES = 100
"""Projects whose jobs are looked for one by one; SQLite takes 500 at most."""


def page_query(wanted: JobFilter) -> Select[Any]:
    """Jobs, newest first. With labels the index of the first one leads, else the owner's or the project's."""
    projects = sorted(wanted.projects or ())
    if not 1 < len(projects) <= MAX_BRANCHES or wanted.labels or wanted.owner is not None:
        return _page_query(wanted)
    # The newest of each project are one run of an index; those of several at once would all be read and sorted.
    pages = [_page_query(replace(wanted, projects=frozenset({project}))) for project in projects]
    newest = [page.with_only_columns(JobRow.job_id).subquery() for page in pages]
    found = union_all(*(select(page.c.job_id) for page in newest))
    query = select(JobRow).where(JobRow.job_id.in_(found))
    return query.order_by(JobRow.created_at.desc(), JobRow.job_id.desc()).limit(wanted.limit)


def _page_query(wanted: JobFilter) -> Select[Any]:
    query = select(JobRow)
    created_at: Any = JobRow.created_at
    job_id: Any = JobRow.job_id
    labels = list(wanted.labels.items())
    if labels:
        key, value = labels[0]
        query = query.join(JobLabelRow, JobLabelRow.job_id == JobRow.job_id)
        query = query.where(JobLabelRow.key == key, JobLabelRow.value == value)
        created_at, job_id = JobLabelRow.created_at, JobLabelRow.job_id
    for key, value in labels[1:]:
        other = aliased(JobLabelRow)
        query = query.where(exists().where(other.job_id == JobRow.job_id, other.key == key, other.value == value))
    if wanted.is_archived is not None:
        # Compared rather than `IS`: PostgreSQL finds only the former in an index.
        query = query.where(JobRow.is_archived == wanted.is_archived)
    if wanted.states:
        query = query.where(JobRow.state.in_([state.value for state in wanted.states]))
    if wanted.name is not None:
        query = query.where(JobRow.name == wanted.name)
    if wanted.kind is not None:
        query = query.where(JobRow.kind == wanted.kind)
    if wanted.projects is not None:
        one = len(wanted.projects) == 1
        project = JobRow.project
        query = query.where(project == min(wanted.projects) if one else project.in_(sorted(wanted.projects)))
    if wanted.owner is not None:
        query = query.where(JobRow.owner == wanted.owner)
    if wanted.before is not None:
        # Said by type: left to the driver, the moment keeps its zone and PostgreSQL reads it in the server's.
        before = tuple_(*wanted.before, types=[UtcDateTime(), String()])
        query = query.where(tuple_(created_at, job_id) < before)
    return query.order_by(created_at.desc(), job_id.desc()).limit(wanted.limit)


def queued_query() -> Select[Any]:
    """Jobs that wait for a place, the next one first."""
    query = select(JobRow).where(
        JobRow.state == JobState.QUEUED.value,
        JobRow.cancel_requested_at.is_(None),
        JobRow.pause_requested_at.is_(None),
    )
    return query.order_by(JobRow.queue_rank, JobRow.created_at, JobRow.job_id)


_QUEUE_ORDER = (JobRow.queue_rank, JobRow.created_at, JobRow.job_id)


def queue_query(per_kind: int, limit: int) -> Select[Any]:
    """Jobs that wait, to plan for: of each kind the first by age, where jobs of one owner, project, priority and demand
    are a kind, for they start or wait for the same reasons. Where even these are too many, the first of each owner, by
    turns: so that nobody's thousand jobs hide another's, nor their own of another kind.
    """
    # A job that was taken before demands were stored has that of its spec.
    kind = (JobRow.owner, JobRow.project, JobRow.queue_rank, func.coalesce(JobRow.demand, JobRow.spec_sha256))
    waiting = queued_query().order_by(None)
    of_kind = func.row_number().over(partition_by=kind, order_by=_QUEUE_ORDER[1:]).label("of_kind")
    columns = (JobRow.job_id, JobRow.owner, *_QUEUE_ORDER[:2])
    kinds = waiting.with_only_columns(*columns, of_kind).subquery()
    turn_order = (kinds.c.of_kind, kinds.c.queue_rank, kinds.c.created_at, kinds.c.job_id)
    turn = func.row_number().over(partition_by=kinds.c.owner, order_by=turn_order).label("turn")
    turns = select(kinds.c.job_id, turn).where(kinds.c.of_kind <= per_kind).subquery()
    query = select(JobRow).join(turns, turns.c.job_id == JobRow.job_id)
    return query.order_by(turns.c.turn, *_QUEUE_ORDER).limit(limit)


def waiting_query(per_owner: int, limit: int, projects: frozenset[str] | None) -> Select[Any]:
    """Jobs that wait, to be shown, of some projects or of all: of each owner the first by their place in the queue."""
    waiting = queued_query().order_by(None)
    if projects is not None:
        waiting = waiting.where(JobRow.project.in_(sorted(projects)))
    # NULLs come last on one database and first on the other.
    place = (JobRow.queue_position.is_(None), JobRow.queue_position, *_QUEUE_ORDER)
    turn = func.row_number().over(partition_by=JobRow.owner, order_by=place).label("turn")
    turns = waiting.with_only_columns(JobRow.job_id, turn).subquery()
    query = select(JobRow).join(turns, turns.c.job_id == JobRow.job_id).where(turns.c.turn <= per_owner)
    return query.order_by(turns.c.turn, *place).limit(limit)


def unsettled_query() -> Select[Any]:
    """Jobs that the reconciler has something to do for, oldest first."""
    state = JobRow.state
    waiting = [JobState.QUEUED.value, JobState.PAUSED.value]
    wanted = or_(
        state.in_([one.value for one in ACTIVE_STATES]),
        and_(state.in_(waiting), JobRow.cancel_requested_at.is_not(None)),
        and_(state == JobState.QUEUED.value, JobRow.pause_requested_at.is_not(None)),
        and_(state == JobState.PAUSED.value, JobRow.pause_requested_at.is_(None)),
        and_(state.in_([one.value for one in TERMINAL_STATES]), JobRow.is_log_saved == false()),
    )
    return select(JobRow).where(wanted).order_by(JobRow.created_at, JobRow.job_id)
