"""The rules and quotas of the settings, and the cluster as large as they say it grows. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from service.queueing.records import Cluster, NodeRoom, Quota, QuotaException, Quotas, Rules
from service.records import ClusterStatus
from service.settings import Settings


def read_rules(settings: Settings) -> Rules:
    """How the service is set."""
    return Rules(
        max_running_jobs=settings.max_running_jobs,
        reservation=timedelta(seconds=settings.reservation_seconds),
        preempts=settings.preemption,
        checks_room=settings.check_room,
    )


def read_quotas(settings: Settings, exceptions: Iterable[QuotaException]) -> Quotas:
    """Those that count."""
    exceptions = tuple(exceptions)
    return Quotas(
        of_owners=Quota(settings.quota_owner_running_jobs, settings.quota_owner_cpus, settings.quota_owner_gpus),
        of_projects=Quota(
            settings.quota_project_running_jobs, settings.quota_project_cpus, settings.quota_project_gpus
        ),
        owners={one.name: one.quota for one in exceptions if one.scope == "owner"},
        projects={one.name: one.quota for one in exceptions if one.scope == "project"},
    )


def at_its_largest(status: ClusterStatus | None, settings: Settings) -> ClusterStatus | None:
    """The cluster as it was seen, and as large as it grows."""
    if status is None or status.num_cpus is None or status.num_gpus is None:
        return status
    cpus = max(status.num_cpus, settings.cluster_max_cpus or 0.0)
    return replace(status, num_cpus=cpus, num_gpus=max(status.num_gpus, settings.cluster_max_gpus or 0.0))


def grown(nodes: tuple[NodeRoom, ...], settings: Settings) -> Cluster:
    """The cluster with what it can still grow by, as one more node that is free."""
    cluster = Cluster(nodes)
    cpus = max((settings.cluster_max_cpus or 0.0) - cluster.num_cpus, 0.0)
    gpus = max((settings.cluster_max_gpus or 0.0) - cluster.num_gpus, 0.0)
    return cluster if not cpus and not gpus else Cluster((*nodes, NodeRoom(cpus, gpus, cpus, gpus)))
