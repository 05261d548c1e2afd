"""What the plan of the queue is made from, and what it says: frozen records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from service.queueing.demand import Demand


class WaitReason(StrEnum):
    """Why a job waits: a closed list."""

    BACKOFF = "backoff"
    """Starting it went wrong a moment ago; it is tried again soon."""
    QUOTA_RUNNING_JOBS = "quota_running_jobs"
    """Its owner or its project has as many running jobs as its quota allows."""
    QUOTA_CPUS = "quota_cpus"
    QUOTA_GPUS = "quota_gpus"
    CLUSTER_UNKNOWN = "cluster_unknown"
    """Ray does not say now what is free."""
    CLUSTER_TOO_SMALL = "cluster_too_small"
    """It would not fit if nothing else ran."""
    MAX_RUNNING_JOBS = "max_running_jobs"
    """The service runs as many jobs as it may."""
    CLUSTER_BUSY = "cluster_busy"
    """What it wants is not free."""
    BEHIND = "behind"
    """What it wants is free, and kept for a job before it; or it was not looked at yet."""


@dataclass(frozen=True)
class Quota:
    """How much may run at a time. None is no limit."""

    max_running_jobs: int | None = None
    max_cpus: float | None = None
    max_gpus: int | None = None


Scope = Literal["owner", "project"]


@dataclass(frozen=True)
class QuotaException:
    """A quota of one owner or one project, in place of that of the settings."""

    scope: Scope
    name: str
    quota: Quota
    set_at: datetime
    set_by: str


@dataclass(frozen=True)
class Quotas:
    """Those of the settings, and the exceptions by name."""

    of_owners: Quota = Quota()
    of_projects: Quota = Quota()
    owners: Mapping[str, Quota] = field(default_factory=dict)
    projects: Mapping[str, Quota] = field(default_factory=dict)

    def of(self, owner: str, project: str) -> tuple[tuple[Scope, str, Quota], ...]:
        """The two that count for a job."""
        return (
            ("owner", owner, self.owners.get(owner, self.of_owners)),
            ("project", project, self.projects.get(project, self.of_projects)),
        )


@dataclass(frozen=True)
class NodeRoom:
    """One node: what it has, and what of it nothing holds."""

    num_cpus: float
    num_gpus: float
    free_cpus: float
    free_gpus: float
    node_id: str = ""
    """Ray's name for it; empty where it is not known."""


@dataclass(frozen=True)
class Holding:
    """What the placement groups of one job hold of a node, as Ray says."""

    node_id: str
    num_cpus: float
    num_gpus: float


@dataclass(frozen=True)
class Departed:
    """A job that has left a moment ago: Ray's figures may still be of it."""

    job_id: str
    held: tuple[Holding, ...] = ()
    """Of which nodes, when it was last seen; empty where that is not known."""
    demand: Demand | None = None
    """None where nothing is known of it: some job may have left."""


@dataclass(frozen=True)
class Cluster:
    """The cluster as Ray described it a moment ago."""

    nodes: tuple[NodeRoom, ...]

    @property
    def num_cpus(self) -> float:
        """Of all nodes."""
        return sum(node.num_cpus for node in self.nodes)

    @property
    def num_gpus(self) -> float:
        """Of all nodes."""
        return sum(node.num_gpus for node in self.nodes)


@dataclass(frozen=True, kw_only=True)
class Active:
    """A job that holds a place."""

    job_id: str
    owner: str
    project: str
    priority: int
    demand: Demand
    is_seen: bool = True
    """What it holds is part of what Ray says is held. Not yet, while it starts."""
    held: tuple[Holding, ...] = ()
    """On which nodes its workers are; empty where that is not known."""
    is_leaving: bool = False
    """It is to pause or to stop: its place will be free."""
    is_preemptible: bool = False
    run_started_at: datetime | None = None
    """When its current attempt began to run."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A job in the queue."""

    job_id: str
    owner: str
    project: str
    priority: int
    demand: Demand
    created_at: datetime
    queued_at: datetime
    """When it came to the queue, this time."""
    is_backed_off: bool = False


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How the service is set."""

    max_running_jobs: int = 1
    reservation: timedelta = timedelta(minutes=10)
    """Room is kept for a job that has waited for it so long."""
    preempts: bool = True
    checks_room: bool = True
    """False: whatever the cluster has, jobs are handed to Ray."""


@dataclass(frozen=True)
class Preemption:
    """A job that is to pause, and the one it makes room for."""

    job_id: str
    for_job_id: str
    is_same_project: bool = True
    """Who sees the one may see the other."""


@dataclass(frozen=True)
class Wait:
    """Why a job stays in the queue."""

    job_id: str
    reason: WaitReason
    message: str
    position: int
    """Counted from 1, in the order in which jobs are looked at."""


@dataclass(frozen=True)
class Plan:
    """What is to be done now, in this order: admit, preempt; and why all others wait."""

    admit: tuple[str, ...]
    preempt: tuple[Preemption, ...]
    waits: tuple[Wait, ...]
