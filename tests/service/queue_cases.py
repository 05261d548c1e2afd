"""Jobs and clusters for tests of the plan, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from service.queueing.demand import Demand
from service.queueing.plan import make_plan
from service.queueing.records import Active, Cluster, Departed, Holding, NodeRoom, Plan, Quotas, Rules, Waiting

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def wants(cpus: int = 1, gpus: int = 0, *, workers: int = 1, group: int | None = None) -> Demand:
    """So much for each of so many workers."""
    return Demand(num_workers=workers, cpus_per_worker=cpus, gpus_per_worker=gpus, group_workers=group or workers)


def waiting(name: str, demand: Demand | None = None, *, age: float = 0, **fields: Any) -> Waiting:
    """A job that came `age` seconds ago."""
    came = NOW - timedelta(seconds=age)
    given = {"owner": "ada", "project": "p", "priority": 0, "created_at": came, "queued_at": came, **fields}
    return Waiting(job_id=name, demand=demand or wants(), **given)


def running(name: str, demand: Demand | None = None, *, ran: float = 3600, **fields: Any) -> Active:
    """A job that has run for `ran` seconds, and may be paused."""
    given = {"owner": "ada", "project": "p", "priority": 0, "is_preemptible": True, **fields}
    return Active(job_id=name, demand=demand or wants(), run_started_at=NOW - timedelta(seconds=ran), **given)


def node(
    cpus: float, gpus: float = 0, *, free: float | None = None, free_gpus: float | None = None, name: str = ""
) -> NodeRoom:
    """All of it free, unless said otherwise."""
    return NodeRoom(cpus, gpus, cpus if free is None else free, gpus if free_gpus is None else free_gpus, name)


def on(**cpus: float) -> tuple[Holding, ...]:
    """So many CPUs on each node."""
    return tuple(Holding(name, number, 0) for name, number in cpus.items())


def planned(
    queued: list[Waiting],
    active: list[Active] | None = None,
    nodes: list[NodeRoom] | None = None,
    *,
    quotas: Quotas | None = None,
    recent: dict[str, float] | None = None,
    departed: Sequence[Departed] = (),
    places: int = 100,
    **rules: Any,
) -> Plan:
    """The plan; by default the cluster is 8 CPUs on one node, of which Ray sees held what the jobs that run hold."""
    active = active or []
    if nodes is None:
        held = sum(job.demand.num_cpus for job in active if job.is_seen)
        nodes = [node(8, free=max(8 - held, 0))]
    cluster = Cluster(tuple(nodes)) if nodes else None
    all_rules = Rules(max_running_jobs=places, **rules)
    return make_plan(queued, active, cluster, quotas or Quotas(), recent or {}, all_rules, NOW, departed=departed)


def reasons(plan: Plan) -> dict[str, str]:
    """Why each job waits."""
    return {wait.job_id: wait.reason.value for wait in plan.waits}


def victims(plan: Plan) -> list[str]:
    """Jobs that are to pause."""
    return [one.job_id for one in plan.preempt]
