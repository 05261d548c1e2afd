"""The words of the queue and of quotas over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from service.http.schemas import Answer, Request, WaitingPublic, waiting_of
from service.queueing.demand import Demand
from service.queueing.records import Quota, QuotaException, Quotas, Scope
from service.queueing.shown import OwnerShare, QueueState
from service.records import ClusterStatus, Job
from service.settings import Settings
from service.states import JobState

SCOPES: dict[str, Scope] = {"owners": "owner", "projects": "project"}


class QuotaLimits(Answer):
    """How much may run at a time. Absent is no limit."""

    max_running_jobs: int | None = None
    max_cpus: float | None = None
    """That all running jobs hold together."""
    max_gpus: int | None = None

    @classmethod
    def from_quota(cls, quota: Quota) -> QuotaLimits:
        """The public view."""
        return cls(max_running_jobs=quota.max_running_jobs, max_cpus=quota.max_cpus, max_gpus=quota.max_gpus)


class QuotaPut(Request):
    """The whole quota: what is absent or `null` is no limit, whatever the settings say."""

    max_running_jobs: Annotated[int, Field(ge=0, le=100_000)] | None = None
    max_cpus: Annotated[float, Field(ge=0, le=1e9)] | None = None
    max_gpus: Annotated[int, Field(ge=0, le=10**6)] | None = None


class QuotaPublic(QuotaLimits):
    """The quota of its own that an owner or a project has."""

    scope: Literal["owner", "project"]
    name: str
    set_at: AwareDatetime
    set_by: str

    @classmethod
    def from_exception(cls, one: QuotaException) -> QuotaPublic:
        """The public view."""
        limits = QuotaLimits.from_quota(one.quota).model_dump()
        return cls(scope=one.scope, name=one.name, set_at=one.set_at, set_by=one.set_by, **limits)


class QuotaList(Answer):
    """All quotas that count."""

    owner_default: QuotaLimits
    """Of an owner who has none of their own."""
    project_default: QuotaLimits
    items: tuple[QuotaPublic, ...]
    """Those that were set, owners first."""

    @classmethod
    def of(cls, quotas: Quotas, exceptions: tuple[QuotaException, ...]) -> QuotaList:
        """The public view."""
        return cls(
            owner_default=QuotaLimits.from_quota(quotas.of_owners),
            project_default=QuotaLimits.from_quota(quotas.of_projects),
            items=tuple(map(QuotaPublic.from_exception, exceptions)),
        )


class JobInQueue(Answer):
    """A job that waits or holds a place, in short."""

    job_id: str
    name: str
    kind: str
    owner: str
    project: str
    state: JobState
    priority: int
    num_cpus: float
    """That it holds while it runs."""
    num_gpus: int
    created_at: AwareDatetime
    run_started_at: AwareDatetime | None
    """When its current attempt began to run."""
    num_preemptions: int
    """How often the queue had it pause for another job."""
    waiting: WaitingPublic | None

    @classmethod
    def from_job(cls, job: Job) -> JobInQueue:
        """The public view of a row."""
        demand = job.demand or Demand()
        names = ("job_id", "name", "kind", "owner", "project", "state", "priority", "created_at", "run_started_at")
        values = {name: getattr(job, name) for name in (*names, "num_preemptions")}
        return cls(num_cpus=demand.num_cpus, num_gpus=demand.num_gpus, waiting=waiting_of(job), **values)


class OwnerInQueue(Answer):
    """What one owner holds in the projects that the principal sees. What all projects' jobs hold decides whose turn it
    is: the least of both shares together goes first.
    """

    owner: str
    num_running_jobs: int
    num_cpus: float
    num_gpus: float
    share: float
    """The larger of the shares of the cluster's CPUs and GPUs, now."""
    recent_share: float | None
    """The same of what was used of late, in all projects, which fades; null of other owners, unless the principal
    sees all projects."""
    quota: QuotaLimits

    @classmethod
    def from_share(cls, one: OwnerShare) -> OwnerInQueue:
        """The public view."""
        return cls(
            owner=one.owner,
            num_running_jobs=one.num_running_jobs,
            num_cpus=one.held.cpus,
            num_gpus=one.held.gpus,
            share=one.share,
            recent_share=one.recent_share,
            quota=QuotaLimits.from_quota(one.quota),
        )


class ClusterInQueue(Answer):
    """The cluster as it was last seen. What is absent is not known."""

    is_reachable: bool
    num_cpus: float | None
    num_gpus: float | None
    free_cpus: float | None
    """That nothing on the cluster holds."""
    free_gpus: float | None
    seen_at: AwareDatetime | None
    """When `free_cpus` and `free_gpus` were."""

    @classmethod
    def from_status(cls, status: ClusterStatus | None) -> ClusterInQueue:
        """The public view of a row."""
        return cls(
            is_reachable=status is not None and status.is_ray_reachable,
            num_cpus=None if status is None else status.num_cpus,
            num_gpus=None if status is None else status.num_gpus,
            free_cpus=None if status is None else status.free_cpus,
            free_gpus=None if status is None else status.free_gpus,
            seen_at=None if status is None else status.resources_at,
        )


class QueuePublic(Answer):
    """The queue."""

    waiting: tuple[JobInQueue, ...]
    """In the order in which they are looked at; positions count jobs that the principal does not see, too."""
    running: tuple[JobInQueue, ...]
    """Jobs that hold a place, oldest first."""
    owners: tuple[OwnerInQueue, ...]
    """Of the jobs above."""
    cluster: ClusterInQueue
    max_running_jobs: int
    """Of the whole service."""

    @classmethod
    def from_state(cls, state: QueueState, settings: Settings) -> QueuePublic:
        """The public view."""
        return cls(
            waiting=tuple(map(JobInQueue.from_job, state.waiting)),
            running=tuple(map(JobInQueue.from_job, state.running)),
            owners=tuple(map(OwnerInQueue.from_share, state.owners)),
            cluster=ClusterInQueue.from_status(state.cluster),
            max_running_jobs=settings.max_running_jobs,
        )
