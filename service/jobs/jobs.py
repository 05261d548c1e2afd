"""The desk: it takes jobs, shows them and notes wishes. It only reads and writes rows; the reconciler acts on them."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from pipelines.specs.earlier import as_it_was
from pipelines.specs.jobs import ID_PREFIXES, JobSpec
from pipelines.specs.parsing import dump_spec, resolve_spec
from pipelines.specs.plans import Plan, plan_any
from pipelines.specs.spec_errors import FieldProblem, SpecError
from pipelines.storage import FoundFile
from service.access.audit import Caller
from service.access.principals import Principal
from service.errors import (
    CorpusUnreadableError,
    Fault,
    IdempotencyConflictError,
    InvalidCursorError,
    InvalidSpecError,
    JobNotFoundError,
)
from service.http.schemas import JobCreate, JobQuery
from service.interfaces import DuplicateKeyError, IdempotencyKey, JobFilter, JobStore, QuotaStore
from service.jobs.bounds import Bounds
from service.jobs.kept_inputs import kept_sections
from service.jobs.namespaces import in_project, without_own_model_name
from service.jobs.pins import Aliases, VersionOf, pin_models, touched, unpinned
from service.jobs.preflight import check_capacity, check_sources
from service.jobs.quota_check import check_quotas
from service.jobs.references import places
from service.jobs.secrets_in_uris import check_secrets
from service.jobs.source_policy import SourcePolicy
from service.jobs.wishes import Wishes
from service.labels import read_label
from service.queueing.limits import at_its_largest, read_quotas
from service.queueing.reckoning import demand_of
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

    def __init__(
        self,
        store: JobStore,
        settings: Settings,
        wake: Callable[[], None] = lambda: None,
        *,
        quotas: QuotaStore | None = None,
        version_of: VersionOf = lambda network: None,
    ) -> None:
        """Args:
        store: of jobs.
        settings: of the service.
        wake: tells the reconciler that there is something to do.
        quotas: exceptions to those of the settings, if there can be any.
        version_of: looks up what an alias of a registered model names now.
        """
        self._version_of = version_of
        self._quotas = quotas
        self._store = store
        self._settings = settings
        self._wake = wake
        self._sources = SourcePolicy(settings, self._project_of)
        self.bounds = Bounds(settings)
        self.wishes = Wishes(store, wake, self.bounds)

    def create(self, request: JobCreate, key: str | None = None, *, caller: Caller, project: str) -> Created:
        """Take a job, or find the one that the same request made before.

        Raises:
            IdempotencyConflictError: the key was used with another body.
            PermissionDeniedError: its priority or a limit is more than the caller may give.
            InvalidSpecError: the spec breaks a rule.
            SecretInRequestError: a URI of it carries one.
            SourceNotAllowedError: it names a place that the project may not read.
            CorpusUnreadableError: a file it names cannot be read.
            InsufficientResourcesError: the cluster is too small.
            QuotaExceededError: the job alone is more than its owner or its project may run.
        """
        named = self.named(key, caller, project, _body(request))
        if (earlier := self.find(named, key)) is not None:
            return self.replay(earlier, caller)
        given = {name: getattr(request, name) for name in ("priority", "labels", "notes", "limits")}
        self.bounds.check_priority(_principal(caller), request.priority)
        self.bounds.check_limits(_principal(caller), request.limits)
        spec, aliases = pin_models(self.admit(resolve(request), project), self._version_of)
        given["resolved_aliases"] = aliases
        return self.take(spec, named, key, caller=caller, action="job.create", project=project, **given)

    def take(
        self,
        spec: JobSpec,
        named: IdempotencyKey | None,
        key: str | None,
        *,
        caller: Caller,
        action: str,
        project: str,
        kept: Sequence[str] = (),
        **fields: Any,
    ) -> Created:
        """Put a new job in the queue, unless its files or the cluster speak against it; see `create`.

        Args:
            spec: admitted.
            named: the request's key as it is kept, which has made no job yet.
            key: as the request has it.
            caller: who the job will belong to.
            action: in the audit log.
            project: what it will belong to.
            kept: pointers of sections whose files need not be there: see `kept_sections`.
            fields: further fields of the job.
        """
        if self._settings.check_capacity:
            check_capacity(spec, at_its_largest(self._store.cluster_status(), self._settings))
        owner = _principal(caller).owner
        check_quotas(
            spec,
            read_quotas(self._settings, () if self._quotas is None else self._quotas.list_quotas()),
            owner,
            project,
        )
        if self._settings.check_sources:
            self._look_at_sources(spec, project, kept)
        job = _new_job(spec, project=project, owner=owner, **fields)
        try:
            self._store.insert(job, named, caller.entry(action, job.job_id, project))
        except DuplicateKeyError:
            earlier = self.find(named, key)  # the same request, sent twice at once
            assert earlier is not None
            return self.replay(earlier, caller)
        log.info("job_created", job_id=job.job_id, job_name=job.name, spec_sha256=job.spec_sha256)
        self._wake()
        return Created(job, is_replay=False)

    def named(self, key: str | None, caller: Caller, project: str, body: Sequence[Any]) -> IdempotencyKey | None:
        """A request's key as it is kept, with what the request was."""
        if key is None:
            return None
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        return IdempotencyKey(_kept_key(key, _principal(caller), project), digest)

    @staticmethod
    def replay(job: Job, caller: Caller) -> Created:
        """The answer to a request that has made its job before."""
        caller.has_record = True  # it changed nothing
        return Created(job, is_replay=True)

    def plan(self, request: JobCreate, project: str) -> Plan:
        """What a job would cost; nothing is started. Sources are measured where that is possible, never required.

        Raises:
            InvalidSpecError: the spec breaks a rule.
            SecretInRequestError: a URI of it carries one.
            SourceNotAllowedError: it names a place that the project may not read.
        """
        spec = self.admit(resolve(request), project)
        size_bytes = None
        if self._settings.check_sources:
            try:
                size_bytes = self._look_at_sources(spec, project)
            except CorpusUnreadableError as error:
                log.info("plan_without_corpus", reason=error.detail)
        return plan_any(spec, size_bytes)

    def get(self, job_id: str) -> Job:
        """One job. Raises `JobNotFoundError`."""
        job = self._store.get(job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def page(self, query: JobQuery, visible: frozenset[str] | None = None) -> tuple[list[Job], str | None]:
        """Jobs, newest first, and the cursor of those after them. Raises `InvalidCursorError`.

        Args:
            query: which.
            visible: only of these projects; None for all.
        """
        projects = visible
        if query.project is not None:
            projects = frozenset({query.project}) if visible is None else visible & {query.project}
        wanted = JobFilter(
            states=query.state,
            name=query.name,
            kind=query.kind,
            labels=dict(map(read_label, query.label)),
            is_archived=query.archived,
            before=None if query.cursor is None else _read_cursor(query.cursor),
            projects=projects,
            owner=query.owner,
            limit=query.limit + 1,  # one more tells whether there is another page
        )
        jobs = self._store.page(wanted)
        has_more = len(jobs) > query.limit
        jobs = jobs[: query.limit]
        return jobs, _write_cursor(jobs[-1]) if has_more else None

    def admit(self, spec: JobSpec, project: str) -> JobSpec:
        """The spec as it counts in its project, if it may be read there: of new jobs and of jobs from jobs alike.

        Raises:
            InvalidSpecError: a name of it looks like another project's.
            SecretInRequestError: a URI of it carries one.
            SourceNotAllowedError: it names a place that the project may not read.
        """
        named = places(spec)
        check_secrets(named)
        self._sources.check(named, project)
        return in_project(spec, project) if self._settings.access == "keys" else spec

    def admit_again(self, old: Job, overrides: Sequence[str], *, keeps_pins: bool) -> tuple[JobSpec, Aliases]:
        """The spec of a job, changed, as it counts in its project by the rules of today; see `admit`.

        Args:
            old: the job.
            overrides: `path=value`.
            keeps_pins: what was looked up for the old job counts on, and what was not is left to the new one, but for
                what the overrides change. Else everything is looked up anew.

        Returns:
            The spec, and the aliases for which it has versions.
        """
        document: dict[str, Any] = as_it_was(json.loads(old.spec_json))
        if self._settings.access == "keys":
            document = without_own_model_name(document, old.project)

        def is_anew(pointer: str) -> bool:
            return not keeps_pins or touched(pointer, overrides)

        document = unpinned(document, {at: alias for at, alias in old.resolved_aliases.items() if is_anew(at)})
        spec = self.admit(resolve(JobCreate(spec=document, overrides=tuple(overrides))), old.project)
        spec, aliases = pin_models(spec, self._version_of, is_anew)
        return spec, {at: alias for at, alias in old.resolved_aliases.items() if not is_anew(at)} | dict(aliases)

    def kept_for(self, spec: JobSpec, old: Job) -> frozenset[str]:
        """Sections of a retry's spec that it reads from copies, whatever becomes of their sources."""
        return kept_sections(spec, old, self._store.get, self._settings)

    def _look_at_sources(self, spec: JobSpec, project: str, kept: Sequence[str] = ()) -> int | None:
        def refusal(uri: str, file: FoundFile) -> str | None:
            return self._sources.refusal_of_file(uri, file, project)

        may_refuse = refusal if self._sources.is_on else None
        return check_sources(spec, self._settings.source_timeout_seconds, may_refuse, kept)

    def _project_of(self, job_id: str) -> str | None:
        job = self._store.get(job_id)
        return None if job is None else job.project

    def find(self, named: IdempotencyKey | None, key: str | None) -> Job | None:
        """The job that a request with this key has made before. Raises `IdempotencyConflictError`."""
        found = None if named is None else self._store.find_by_key(named.key)
        if named is None or found is None:
            return None
        earlier, job = found
        if earlier.body_sha256 != named.body_sha256:
            detail = f"Idempotency-Key {key!r} made {job.job_id} from another body. Use a new key for a new job."
            raise IdempotencyConflictError(detail, [Fault("/header/Idempotency-Key", "must be new", key)])
        return job

    def cancel(self, job_id: str, caller: Caller) -> Job:
        """Note that a job should stop; see `Wishes.cancel`."""
        return self.wishes.cancel(job_id, caller)


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
        demand=demand_of(spec),
        **fields,
    )


def new_job_id(kind: str = "pretrain") -> str:
    """A mark of the kind, the time in milliseconds and 40 random bits: ids of a kind sort by age and cannot be guessed
    from one another.
    """
    return f"{ID_PREFIXES[kind]}-{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"


def _kept_key(key: str, principal: Principal, project: str) -> str:
    """The name under which a key is kept: of each owner and project its own, so that nobody replays another's."""
    if principal.method == "open":
        return key  # as before there were owners
    return "of:" + hashlib.sha256("\0".join((principal.owner, project, key)).encode()).hexdigest()


def _principal(caller: Caller) -> Principal:
    assert caller.principal is not None, "whoever makes a job is recognised"
    return caller.principal


def _body(request: JobCreate) -> list[Any]:
    # Of what was sent, not of the resolved spec: a default may change between two versions of this software.
    sent = request.model_dump(mode="json", exclude={"spec", "overrides"}, exclude_defaults=True)
    return [request.spec, list(request.overrides), *([sent] if sent else [])]


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
