"""The desk: it takes jobs, shows them and notes wishes. It only reads and writes rows; the reconciler acts on them."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from pipelines.specs.jobs import ID_PREFIXES, JobSpec
from pipelines.specs.parsing import dump_spec, resolve_spec
from pipelines.specs.plans import Plan, plan_any
from pipelines.specs.spec_errors import FieldProblem, SpecError
from service.errors import (
    CorpusUnreadableError,
    Fault,
    IdempotencyConflictError,
    InvalidCursorError,
    InvalidSpecError,
    JobNotFoundError,
)
from service.http.schemas import JobCreate, JobQuery
from service.interfaces import DuplicateKeyError, IdempotencyKey, JobFilter, JobStore
from service.jobs.again import Again
from service.jobs.preflight import check_capacity, check_sources
from service.jobs.wishes import Wishes
from service.labels import read_label
from service.records import Job
from service.settings import Settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Created:
    """A job, and whether this request made it or an earlier one with the same key."""

    job: Job
    is_replay: bool


class Jobs:
    """What can be asked of the desk."""

    def __init__(self, store: JobStore, settings: Settings, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` tells the reconciler that there is something to do."""
        self._store = store
        self._settings = settings
        self._wake = wake
        self.wishes = Wishes(store, wake)
        self.again = Again(self)

    def create(self, request: JobCreate, key: str | None = None) -> Created:
        """Take a job, or find the one that the same request made before.

        Raises:
            IdempotencyConflictError: the key was used with another body.
            InvalidSpecError: the spec breaks a rule.
            CorpusUnreadableError: a file it names cannot be read.
            InsufficientResourcesError: the cluster is too small.
        """
        named = None if key is None else IdempotencyKey(key, _body_sha256(request))
        if (earlier := self.find(named)) is not None:
            return Created(earlier, is_replay=True)
        given = {name: getattr(request, name) for name in ("priority", "labels", "notes", "limits")}
        return self.take(resolve(request), named, **given)

    def take(self, spec: JobSpec, named: IdempotencyKey | None, **fields: Any) -> Created:
        """Put a new job in the queue, unless its files or the cluster speak against it; see `create`.

        Args:
            spec: resolved.
            named: the request's key, which has made no job yet.
            fields: further fields of the job.
        """
        check_capacity(spec, self._store.cluster_status())
        if self._settings.check_sources:
            check_sources(spec, self._settings.source_timeout_seconds)
        job = _new_job(spec, **fields)
        try:
            self._store.insert(job, named)
        except DuplicateKeyError:
            earlier = self.find(named)  # the same request, sent twice at once
            assert earlier is not None
            return Created(earlier, is_replay=True)
        log.info("job_created", job_id=job.job_id, job_name=job.name, spec_sha256=job.spec_sha256)
        self._wake()
        return Created(job, is_replay=False)

    @staticmethod
    def replay(job: Job) -> Created:
        """The answer to a request that has made its job before."""
        return Created(job, is_replay=True)

    @staticmethod
    def resolve(request: JobCreate) -> JobSpec:
        """See the function of that name."""
        return resolve(request)

    def plan(self, request: JobCreate) -> Plan:
        """What a job would cost; nothing is started. Sources are measured where that is possible, never required.

        Raises:
            InvalidSpecError: the spec breaks a rule.
        """
        spec = resolve(request)
        size_bytes = None
        if self._settings.check_sources:
            try:
                size_bytes = check_sources(spec, self._settings.source_timeout_seconds)
            except CorpusUnreadableError as error:
                log.info("plan_without_corpus", reason=error.detail)
        return plan_any(spec, size_bytes)

    def get(self, job_id: str) -> Job:
        """One job. Raises `JobNotFoundError`."""
        job = self._store.get(job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def page(self, query: JobQuery) -> tuple[list[Job], str | None]:
        """Jobs, newest first, and the cursor of those after them. Raises `InvalidCursorError`."""
        wanted = JobFilter(
            states=query.state,
            name=query.name,
            kind=query.kind,
            labels=dict(map(read_label, query.label)),
            is_archived=query.archived,
            before=None if query.cursor is None else _read_cursor(query.cursor),
            limit=query.limit + 1,  # one more tells whether there is another page
        )
        jobs = self._store.page(wanted)
        has_more = len(jobs) > query.limit
        jobs = jobs[: query.limit]
        return jobs, _write_cursor(jobs[-1]) if has_more else None

    def find(self, named: IdempotencyKey | None) -> Job | None:
        """The job that a request with this key has made before. Raises `IdempotencyConflictError`."""
        found = None if named is None else self._store.find_by_key(named.key)
        if named is None or found is None:
            return None
        earlier, job = found
        if earlier.body_sha256 != named.body_sha256:
            detail = f"Idempotency-Key {named.key!r} made {job.job_id} from another body. Use a new key for a new job."
            raise IdempotencyConflictError(detail, [Fault("/header/Idempotency-Key", "must be new", named.key)])
        return job

    def cancel(self, job_id: str) -> Job:
        """Note that a job should stop; see `Wishes.cancel`."""
        return self.wishes.cancel(job_id)


def resolve(request: JobCreate) -> JobSpec:
    """The spec with preset, defaults and overrides filled in.

    Raises:
        InvalidSpecError: with a fault for every field that breaks a rule.
    """
    try:
        return resolve_spec(request.spec, request.overrides)
    except SpecError as error:
        faults = [_fault(problem, request) for problem in error.problems]
        raise InvalidSpecError(f"{error}.", faults) from error


def _fault(problem: FieldProblem, request: JobCreate) -> Fault:
    """Where the user wrote it: in the spec or, if it was set there, in an override."""
    for index, override in reversed(list(enumerate(request.overrides))):
        path = override.partition("=")[0].strip()
        is_inside = problem.field == path or problem.field.startswith(f"{path}.")
        if is_inside or (not problem.field and problem.value == repr(override)):
            return Fault(f"/overrides/{index}", problem.rule, problem.value)
    parts = [part.replace("~", "~0").replace("/", "~1") for part in map(str, problem.path)]
    return Fault("/".join(["/spec", *parts]), problem.rule, problem.value)


def _new_job(spec: JobSpec, **fields: Any) -> Job:
    spec_json = dump_spec(spec)
    return Job(
        job_id=new_job_id(spec.kind),
        name=spec.name,
        kind=spec.kind,
        spec_json=spec_json,
        spec_sha256=hashlib.sha256(spec_json.encode()).hexdigest(),
        created_at=datetime.now(UTC),
        **fields,
    )


def new_job_id(kind: str = "pretrain") -> str:
    """A mark of the kind, the time in milliseconds and 40 random bits: ids of a kind sort by age and cannot be guessed
    from one another.
    """
    return f"{ID_PREFIXES[kind]}-{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"


def _body_sha256(request: JobCreate) -> str:
    # Of what was sent, not of the resolved spec: a default may change between two versions of this software.
    sent = request.model_dump(mode="json", exclude={"spec", "overrides"}, exclude_defaults=True)
    body = [request.spec, list(request.overrides), *([sent] if sent else [])]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _write_cursor(job: Job) -> str:
    return base64.urlsafe_b64encode(f"{job.created_at.isoformat()} {job.job_id}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        created_at, job_id = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii").split(" ")
        moment = datetime.fromisoformat(created_at).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        rule = "cursor must be the next_cursor of an earlier page"
        raise InvalidCursorError(f"{rule}.", [Fault("/query/cursor", rule, cursor[:200])]) from error
    return moment, job_id
