"""Whether a job may start by the quota of its owner and its project. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from service.queueing.amounts import EPSILON, Amount, amount_of
from service.queueing.demand import Demand
from service.queueing.records import Active, Quota, Quotas, Waiting, WaitReason


class Used:
    """What owners and projects hold. Changed only by the plan that is being made."""

    def __init__(self, active: Sequence[Active] = ()) -> None:
        self._amounts: dict[tuple[str, str], Amount] = {}
        self._jobs: Counter[tuple[str, str]] = Counter()
        for job in active:
            self.add(job.owner, job.project, job.demand)

    def add(self, owner: str, project: str, demand: Demand) -> None:
        """A job holds it from now on."""
        for key in (("owner", owner), ("project", project)):
            self._amounts[key] = self.amount(*key) + amount_of(demand)
            self._jobs[key] += 1

    def amount(self, scope: str, name: str) -> Amount:
        """Of an owner or a project."""
        return self._amounts.get((scope, name), Amount())

    def num_jobs(self, scope: str, name: str) -> int:
        """Of an owner or a project."""
        return self._jobs[scope, name]

    def by_owner(self, owner: str) -> Amount:
        """Of an owner."""
        return self.amount("owner", owner)


def quota_in_the_way(quotas: Quotas, used: Used, job: Waiting) -> tuple[WaitReason, str] | None:
    """The first rule that the job would break if it started now, and a sentence; None if it would break none. Of a
    search all its trials count, however many of them the cluster has room for.
    """
    for scope, name, quota in quotas.of(job.owner, job.project):
        broken = next(broken_rules(quota, used.amount(scope, name), used.num_jobs(scope, name), job.demand), None)
        if broken is not None:
            reason, limit, unit, _ = broken
            # What it would be is not said: an owner's sum is also of projects that not every reader sees.
            return reason, f"The quota of {scope} {name} is {limit:g} {unit} at a time, and with this it would be more."
    return None


def broken_rules(
    quota: Quota, held: Amount, num_jobs: int, demand: Demand
) -> Iterator[tuple[WaitReason, float, str, float]]:
    """Each limit that one more job would go beyond: why, the limit, its unit, and what it would be."""
    amount = held + amount_of(demand)
    jobs, cpus, gpus = quota.max_running_jobs, quota.max_cpus, quota.max_gpus
    if jobs is not None and num_jobs + 1 > jobs:
        yield WaitReason.QUOTA_RUNNING_JOBS, jobs, "running jobs", num_jobs + 1
    if cpus is not None and amount.cpus > cpus + EPSILON:
        yield WaitReason.QUOTA_CPUS, cpus, "CPUs", amount.cpus
    if gpus is not None and demand.num_gpus and amount.gpus > gpus + EPSILON:
        yield WaitReason.QUOTA_GPUS, gpus, "GPUs", amount.gpus
