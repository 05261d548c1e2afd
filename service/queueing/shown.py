"""The queue as it is shown: frozen records. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from service.queueing.amounts import Amount
from service.queueing.records import Quota
from service.records import ClusterStatus, Job


@dataclass(frozen=True)
class OwnerShare:
    """What one owner holds, in the projects that are shown."""

    owner: str
    num_running_jobs: int
    held: Amount
    share: float
    """The larger of the shares of the cluster's CPUs and GPUs that it holds now."""
    recent_share: float | None
    """The same of what it has used of late, in all projects; None where that is not for the reader to know."""
    quota: Quota


@dataclass(frozen=True)
class QueueState:
    """The queue at a moment."""

    waiting: tuple[Job, ...]
    """In the order in which they are looked at; each of these and of those that run with its demand."""
    running: tuple[Job, ...]
    owners: tuple[OwnerShare, ...]
    cluster: ClusterStatus | None
