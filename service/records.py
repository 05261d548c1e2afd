"""What the service knows of a job: frozen records that store, desk and reconciler hand each other. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from pipelines.specs.documents import Failure, JobResult, Progress, Stage
from service.states import JobState


class JobFailure(BaseModel):
    """Why a job failed, in the job's own words or, where it left none, in the service's."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    code: str
    """`spec`, `data`, `non_finite_loss`, `resources`, `checkpoint`, `record` or `internal` from the job itself;
    `lost` when its process ended without a word, `rejected` when Ray would not take it."""
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
    project: str = "default"
    owner: str = "local"
    """Who submitted it."""

    @property
    def ray_submission_id(self) -> str | None:
        """Ray's name for the current attempt."""
        return submission_id(self.job_id, self.attempt) if self.attempt else None


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


def submission_id(job_id: str, attempt: int) -> str:
    """Ray's name for an attempt: the same attempt can reach Ray only once."""
    return f"{job_id}-a{attempt}"
