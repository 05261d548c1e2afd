"""The words of the HTTP interface: what requests and answers look like."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from pipelines.specs.documents import JobResult, Progress
from pipelines.specs.model_source import DEFAULT_ALIAS
from pipelines.specs.trial_documents import TrialState, TrialSummary
from service.access.principals import OwnerName, ProjectName
from service.labels import Labels, LabelText
from service.queueing.records import WaitReason
from service.records import Job, JobFailure, JobLimits
from service.settings import Settings
from service.states import JobState

Override = Annotated[str, Field(min_length=3, max_length=4096)]
Priority = Annotated[int, Field(ge=-100, le=100)]
NO_NUL = r"^[^\x00]*$"
"""PostgreSQL takes no text that holds one, as little to compare with as to keep."""
Notes = Annotated[str, Field(max_length=4000, pattern=NO_NUL)]
JOB_ID_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"


class Request(BaseModel):
    """A body or a query: unknown keys are refused, so that a misspelt one is not passed over."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Answer(BaseModel):
    """Unknown keys are passed over by clients older than the service."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", use_attribute_docstrings=True, populate_by_name=True, protected_namespaces=()
    )


class JobCreate(Request):
    """A job to run or to plan."""

    spec: dict[str, Any]
    """The spec, as in a file. `preset` and the defaults fill in what it leaves out."""
    overrides: Annotated[tuple[Override, ...], Field(max_length=200)] = ()
    """`section.field=value` each, laid over the spec in order; the value is YAML."""
    priority: Priority = 0
    """Queued jobs are taken by it, the highest first; of equals those of whoever holds least, and then the oldest. A
    higher one may have running jobs of lower priority pause."""
    labels: Labels = {}
    """Names and values to find the job by, with the syntax of Kubernetes' labels."""
    notes: Notes = ""
    """For people."""
    limits: JobLimits = JobLimits()
    project: ProjectName | None = None
    """What the job and all it leaves belong to; the principal's own when absent."""


class JobAgain(Request):
    """What to change of a job that is retried or cloned. What is absent is as it was; its project always is."""

    overrides: Annotated[tuple[Override, ...], Field(max_length=200)] = ()
    """`section.field=value` each, laid over the resolved spec in order; the value is YAML."""
    priority: Priority | None = None
    labels: Labels | None = None
    notes: Notes | None = None
    limits: JobLimits | None = None


class JobEdit(Request):
    """What people say of a job. What is absent stays; null clears."""

    priority: Priority | None = None
    labels: Labels | None = None
    """In place of all that it has."""
    notes: Notes | None = None


class JobQuery(Request):
    """Which jobs to list, newest first."""

    state: Annotated[list[JobState], Field(max_length=20)] = []
    """Any of these states."""
    name: Annotated[str, Field(max_length=100, pattern=NO_NUL)] | None = None
    """Exactly this name."""
    kind: Literal["pretrain", "finetune", "evaluate", "search"] | None = None
    label: Annotated[list[LabelText], Field(max_length=8)] = []
    """`key=value`: jobs that have all of these."""
    archived: bool = False
    """Jobs that are archived, instead of those that are not."""
    project: ProjectName | None = None
    """Of the projects that the principal sees, this one alone."""
    owner: OwnerName | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    """Jobs a page."""
    cursor: Annotated[str, Field(max_length=500)] | None = None
    """`next_cursor` of the page before."""


class EventQuery(Request):
    """Which events to follow."""

    after: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Number of the last event that was seen; `Last-Event-ID` goes before it. Only new ones when both are absent."""


class TrialQuery(Request):
    """Which trials of a search to list, and in which order."""

    sort: Literal["number", "rank", "score", "flops", "step"] = "number"
    """`rank` is that of the leaderboard: trials that came further first, of these the better score."""
    order: Literal["asc", "desc"] | None = None
    """When absent the best first by `rank` and by `score`, and the least of all else."""
    state: Annotated[list[TrialState], Field(max_length=10)] = []
    """Any of these states."""
    is_final: bool | None = None
    """Only trials of the final round, or only the others."""
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    """Trials a page."""
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,9}$")] | None = None
    """`next_cursor` of the page before."""


class TrialPage(Answer):
    """Some trials of a search."""

    items: tuple[TrialSummary, ...]
    total: int
    """Trials that there are on all pages."""
    metric: str | None = None
    """What a score is; absent until there is a trial."""
    mode: Literal["max", "min"] | None = None
    """Whether more of it is better."""
    next_cursor: str | None = None
    """Give it as `cursor` for the trials after these; absent at the end."""


class Links(Answer):
    """Where else to look."""

    self_: Annotated[str, Field(alias="self")]
    logs: str
    mlflow: str | None = None
    """The run's page, once there is a run."""
    ray: str | None = None
    """The current attempt's page in Ray's dashboard."""


class WaitingPublic(Answer):
    """Why a job waits."""

    reason: WaitReason
    """One of a closed list, for programs."""
    message: str
    """For people."""
    since: AwareDatetime
    """When the job came to the queue, this time."""
    position: int | None = None
    """In the queue, counted from 1; absent where it was not looked at yet."""


class JobPublic(Answer):
    """A job as lists show it."""

    job_id: str
    name: str
    kind: str
    project: str = "default"
    owner: str = "local"
    """Who submitted it."""
    state: JobState
    attempt: int
    """Counted from 1; 0 before the first."""
    created_at: AwareDatetime
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    cancel_requested: bool
    progress: Progress | None
    """The last that the job said of itself; its `attempt` tells which attempt spoke."""
    failure: JobFailure | None
    """Why the job failed; while it runs, why the attempt before did."""
    result: JobResult | None
    """What the job left when it ended."""
    links: Links
    priority: int = 0
    labels: dict[str, str] = {}
    notes: str = ""
    limits: JobLimits = JobLimits()
    """As the request had them; what is absent is as the service is set."""
    running_seconds: float = 0.0
    """In state RUNNING as far as it was watched, all attempts together: what `limits.running_seconds` is held to."""
    is_archived: bool = False
    pause_requested: bool = False
    kill_requested: bool = False
    retry_of: str | None = None
    """The job that this one tries again."""
    goes_on_with: Literal["checkpoint", "finished_seeds"] | None = None
    """What of `retry_of` is taken over: its newest checkpoint, or the finetuning runs that were finished, as far as the
    spec still is theirs. Absent where everything starts over."""
    clone_of: str | None = None
    """The job whose spec this one was made from."""
    resolved_aliases: dict[str, str] = {}
    """JSON pointers into the spec to the aliases of models that were looked up when the job was taken: the spec has the
    versions found. A retry keeps them; a clone looks aliases up anew."""
    waiting: WaitingPublic | None = None
    """Why it is not started; absent unless it is QUEUED."""
    num_preemptions: int = 0
    """How often the queue had it pause, at a checkpoint, for a job of higher priority."""
    preempted_at: AwareDatetime | None = None
    """The last time."""
    preempted_for: str | None = None
    """The other job, the last time; absent where it is of another project."""

    @classmethod
    def from_job(cls, job: Job, settings: Settings) -> JobPublic:
        """The public view of a row."""
        return cls(**_public_fields(job, settings))


class JobDetail(JobPublic):
    """A job with its spec."""

    spec: dict[str, Any]
    """The resolved spec: every default filled in."""
    spec_sha256: str

    @classmethod
    def from_job(cls, job: Job, settings: Settings) -> JobDetail:
        """The public view of a row, spec included."""
        return cls(**_public_fields(job, settings), spec=json.loads(job.spec_json), spec_sha256=job.spec_sha256)


class JobPage(Answer):
    """Some jobs, newest first."""

    items: tuple[JobPublic, ...]
    next_cursor: str | None = None
    """Give it as `cursor` for the jobs after these; absent at the end."""


class Preset(Answer):
    """A whole spec by name."""

    name: str
    summary: str
    spec: dict[str, Any]


class PresetList(Answer):
    """All presets."""

    items: tuple[Preset, ...]


class Health(Answer):
    """The service answers; for `/readyz`, with all it needs."""

    status: Literal["ok"] = "ok"


class ReadyPart(Answer):
    """One of the things the service needs."""

    state: Literal["ok", "absent"]
    needed: bool
    """Without it the service is not ready."""
    detail: str


class Readiness(Answer):
    """The service has all it needs."""

    status: Literal["ok"] = "ok"
    parts: dict[str, ReadyPart]
    """`database`, `migrations`, `reconciler`, `leader` and `ray`."""


class ProblemItem(Answer):
    """One thing wrong with a request."""

    pointer: str
    """JSON pointer into the body, such as `/spec/training/sequence_length`; `/query/…`, `/path/…` or `/header/…` for
    the rest of the request."""
    rule: str
    """What it must be."""
    value: str | None = None
    """What was received, shortened."""


class Problem(Answer):
    """Any answer but success (RFC 9457, `application/problem+json`)."""

    type: str
    """`urn:electra:problem:` and the code."""
    title: str
    status: int
    code: str
    """For programs: stable, one per kind of problem."""
    detail: str
    """For people: what happened and what to do."""
    instance: str
    """Path of the request."""
    request_id: str
    """Stands in the service's log too."""
    errors: tuple[ProblemItem, ...] = ()


_NOT_LOOKED_AT = "It was not looked at yet."
_TAKEN_OVER = {"pretrain": "checkpoint", "finetune": "finished_seeds"}
"""By kind of job. A search or an evaluation that is retried starts over."""


def _public_fields(job: Job, settings: Settings) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "name": job.name,
        "kind": job.kind,
        "project": job.project,
        "owner": job.owner,
        "state": job.state,
        "attempt": job.attempt,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "cancel_requested": job.cancel_requested_at is not None,
        "progress": job.progress,
        "failure": job.failure,
        "result": job.result,
        "links": _links(job, settings),
        "priority": job.priority,
        "labels": dict(job.labels),
        "notes": job.notes,
        "limits": job.limits,
        "running_seconds": job.running_seconds,
        "is_archived": job.is_archived,
        "pause_requested": job.pause_requested_at is not None,
        "kill_requested": job.kill_requested_at is not None,
        "retry_of": job.retry_of,
        "goes_on_with": None if job.retry_of is None else _TAKEN_OVER.get(job.kind),
        "clone_of": job.clone_of,
        "resolved_aliases": {pointer: alias or DEFAULT_ALIAS for pointer, alias in job.resolved_aliases.items()},
        "waiting": waiting_of(job),
        "num_preemptions": job.num_preemptions,
        "preempted_at": job.preempted_at,
        "preempted_for": job.preempted_for,
    }


def waiting_of(job: Job) -> WaitingPublic | None:
    """Why a job waits, as the last plan of the queue has it."""
    if job.state is not JobState.QUEUED:
        return None
    since = job.queued_at or job.created_at
    if job.waiting_reason is None or job.waiting_reason not in set(WaitReason):
        return WaitingPublic(reason=WaitReason.BEHIND, message=job.waiting_message or _NOT_LOOKED_AT, since=since)
    reason, message = WaitReason(job.waiting_reason), job.waiting_message or ""
    return WaitingPublic(reason=reason, message=message, since=since, position=job.queue_position)


def _links(job: Job, settings: Settings) -> Links:
    path = f"/v1/jobs/{job.job_id}"
    mlflow = ray = None
    told = job.result if job.result is not None and job.result.mlflow_run_id else job.progress
    if settings.mlflow_url and told and told.mlflow_run_id and told.mlflow_experiment_id:
        mlflow = f"{settings.mlflow_url}/#/experiments/{told.mlflow_experiment_id}/runs/{told.mlflow_run_id}"
    if job.ray_submission_id:
        ray = f"{settings.ray_url or settings.ray_address}/#/jobs/{job.ray_submission_id}"
    return Links(self_=path, logs=f"{path}/logs", mlflow=mlflow, ray=ray)
