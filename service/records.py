"""What the service knows of a job: frozen records that store, desk and reconciler hand each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pipelines.specs.documents import Failure, JobResult, Progress, Stage
from service.queueing.demand import Demand
from service.states import REASON_OF_CODE, FailureReason, JobState

MAX_LIMIT_SECONDS = 366 * 86_400.0
Seconds = Annotated[float, Field(ge=1, le=MAX_LIMIT_SECONDS, allow_inf_nan=False)]


class JobLimits(BaseModel):
    """How long a job may take. What is absent is as the service is set."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    starting_seconds: Seconds | None = None
    """From being handed to Ray until its process runs, each attempt by itself; beyond it the job fails."""
    running_seconds: Seconds | None = None
    """In state RUNNING, all attempts together and pauses left out; beyond it the job is asked to save a checkpoint and
    fails."""
    silence_seconds: Seconds | None = None
    """Without a sign of life; beyond it the attempt is stopped and another one begins."""


def _reason_of(data: dict[str, Any]) -> FailureReason:
    return REASON_OF_CODE.get(str(data.get("code")), FailureReason.INTERNAL)


class JobFailure(BaseModel):
    """Why a job failed, in the job's own words or, where it left none, in the service's."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    code: str
    """`spec`, `data`, `non_finite_loss`, `out_of_memory`, `resources`, `checkpoint`, `record` or `internal` from the
    job itself; `lost` when its process ended without a word, `rejected` when Ray would not take it,
    `starting_deadline` or `running_deadline` when it took too long."""
    reason: FailureReason = Field(default_factory=_reason_of)
    """One of a closed list; whether it is tried again hangs on it."""
    message: str
    stage: Stage | None = None
    step: int | None = None
    attempt: int
    """The attempt that failed."""
    details: tuple[str, ...] = ()
    """Lines of a report, such as bad records by file and line."""

    @classmethod
    def from_document(cls, failure: Failure, attempt: int) -> JobFailure:
        """The failure of a `result.json`."""
        return cls(attempt=attempt, **failure.model_dump(exclude={"can_retry"}))


@dataclass(frozen=True, kw_only=True)
class Job:
    """One row of the table of jobs."""

    job_id: str
    name: str
    kind: str
    spec_json: str
    """Canonical JSON of the resolved spec."""
    spec_sha256: str
    """Of `spec_json` in UTF-8, hexadecimal."""
    created_at: datetime
    state: JobState = JobState.QUEUED
    attempt: int = 0
    """0 before the first."""
    started_at: datetime | None = None
    """When the first attempt began to run."""
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    not_before_at: datetime | None = None
    """The attempt is not handed to Ray before this."""
    heartbeat_seen_at: datetime | None = None
    """When the reconciler last saw a sign of life: by its own clock, as the cluster's may differ."""
    progress: Progress | None = None
    result: JobResult | None = None
    failure: JobFailure | None = None
    """Why the job failed; while it runs, why the attempt before did."""
    is_log_saved: bool = False
    """The last attempt's log lies in the job's folder, or is known to be lost."""
    priority: int = 0
    """Queued jobs are taken by it, the highest first."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Names and values to find it by."""
    resolved_aliases: Mapping[str, str | None] = field(default_factory=dict)
    """JSON pointers into the spec to the aliases of models that were looked up when the job was taken: there the spec
    has the version found. None is the alias that counts where a spec names none."""
    notes: str = ""
    """What people wrote about it."""
    limits: JobLimits = field(default_factory=JobLimits)
    is_archived: bool = False
    """Lists do not show it unless asked."""
    retry_of: str | None = None
    """The job whose work this one goes on with."""
    clone_of: str | None = None
    """The job whose spec this one was made from."""
    pause_requested_at: datetime | None = None
    """None once it is resumed."""
    kill_requested_at: datetime | None = None
    """Set only together with `cancel_requested_at`: to kill is to cancel without waiting."""
    stop_asked_at: datetime | None = None
    """When control.json told the current attempt to stop."""
    num_failures: int = 0
    """Attempts that ended by a fault. Those that paused are not among them."""
    starting_seconds: float = 0.0
    """That the current attempt has been seen waiting on Ray."""
    running_seconds: float = 0.0
    """That the job has been seen RUNNING, all attempts together."""
    silent_seconds: float = 0.0
    """That the current attempt has been seen running without a new word."""
    project: str = "default"
    owner: str = "local"
    """Who submitted it."""
    demand: Demand | None = None
    """What it holds of the cluster while it runs; None for a job that was taken before demands were stored."""
    queued_at: datetime | None = None
    """When it last came back to the queue; None while it has not left it, or has not come back."""
    waiting_reason: str | None = None
    """Why it waits, a `WaitReason`; None where the queue was not planned since it came, or where it does not wait."""
    waiting_message: str | None = None
    queue_position: int | None = None
    """Counted from 1."""
    run_started_at: datetime | None = None
    """When the current attempt began to run."""
    preempted_at: datetime | None = None
    """When the queue last had it pause for another."""
    preempted_for: str | None = None
    """The other, where it is of the same project."""
    num_preemptions: int = 0
    adopted_submissions: Mapping[str, str] = field(default_factory=dict)
    """Ray's names for attempts that the service did not start but found, by their number."""

    @property
    def ray_submission_id(self) -> str | None:
        """Ray's name for the current attempt."""
        return self.submission_of(self.attempt) if self.attempt else None

    @property
    def is_adopted(self) -> bool:
        """The current attempt was started by somebody else."""
        return str(self.attempt) in self.adopted_submissions

    def submission_of(self, attempt: int) -> str:
        """Ray's name for an attempt."""
        return self.adopted_submissions.get(str(attempt)) or submission_id(self.job_id, attempt)


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """What the reconciler last saw, for those who may not look themselves."""

    reconciled_at: datetime
    """When the reconciler last began a round."""
    is_ray_reachable: bool
    ray_error: str | None = None
    num_cpus: float | None = None
    """Of the whole cluster; None when unknown."""
    num_gpus: float | None = None
    free_cpus: float | None = None
    """That nothing holds, as Ray said at `resources_at`; None when unknown."""
    free_gpus: float | None = None
    resources_at: datetime | None = None


def submission_id(job_id: str, attempt: int) -> str:
    """Ray's name for an attempt: the same attempt can reach Ray only once."""
    return f"{job_id}-a{attempt}"
