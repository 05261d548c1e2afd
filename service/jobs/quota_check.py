"""Whether a job fits into its quotas at all, looked at before it is taken."""

from __future__ import annotations

from pipelines.specs.jobs import JobSpec
from pipelines.specs.search import SearchSpec
from service.errors import Fault, QuotaExceededError
from service.queueing.amounts import Amount
from service.queueing.quotas import broken_rules
from service.queueing.reckoning import demand_of
from service.queueing.records import Quotas, WaitReason

_FIELDS = {WaitReason.QUOTA_CPUS: "cpus_per_worker", WaitReason.QUOTA_GPUS: "gpus_per_worker"}


def check_quotas(spec: JobSpec, quotas: Quotas, owner: str, project: str) -> None:
    """Compare what a job holds with what its owner and its project may run when nothing else of theirs does.

    Raises:
        QuotaExceededError: it is more.
    """
    demand = demand_of(spec)
    section, count = (
        ("base.compute", "compute.max_concurrent_trials × ")
        if isinstance(spec, SearchSpec)
        else (
            "compute",
            "",
        )
    )
    faults = []
    for scope, name, quota in quotas.of(owner, project):
        for reason, limit, unit, value in broken_rules(quota, Amount(), 0, demand):
            if reason is WaitReason.QUOTA_RUNNING_JOBS:
                faults.append(Fault("/spec", f"{scope} {name} may have {limit:g} running jobs", f"{value:g}"))
                continue
            what = f"{count}{section}.num_workers × {_FIELDS[reason]}"
            rule = f"{what} must be at most {limit:g} {unit}, the quota of {scope} {name}"
            faults.append(Fault(f"/spec/{section.replace('.', '/')}/num_workers", rule, f"{value:g}"))
    if faults:
        raise QuotaExceededError("; ".join(f"{fault.rule}, got {fault.value}" for fault in faults), faults)
