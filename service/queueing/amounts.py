"""Amounts of the cluster: CPUs and GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from service.queueing.demand import Demand

EPSILON = 1e-6
"""Ray counts in ten-thousandths, and sums of such fractions are not exact."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Some of the cluster, or of a node of it."""

    cpus: float = 0.0
    gpus: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cpus + other.cpus, self.gpus + other.gpus)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.cpus - other.cpus, self.gpus - other.gpus)

    def holds(self, demand: Demand) -> bool:
        """Whether it is enough. What a job wants none of may be short."""
        has_cpus = demand.num_cpus <= self.cpus + EPSILON
        return has_cpus and (not demand.num_gpus or demand.num_gpus <= self.gpus + EPSILON)

    def covers(self, other: Amount) -> bool:
        """Whether it is as much of each."""
        return other.cpus <= self.cpus + EPSILON and other.gpus <= self.gpus + EPSILON

    def least(self, other: Amount) -> Amount:
        """The smaller of each."""
        return Amount(min(self.cpus, other.cpus), min(self.gpus, other.gpus))

    def clipped(self) -> Amount:
        """None of anything where it is less than none."""
        return self if self.cpus >= 0 and self.gpus >= 0 else Amount(max(self.cpus, 0.0), max(self.gpus, 0.0))


def amount_of(demand: Demand) -> Amount:
    """What a job holds."""
    return Amount(demand.num_cpus, demand.num_gpus)


def workers_amount(demand: Demand, num_workers: int) -> Amount:
    """What so many of a job's workers hold."""
    return Amount(num_workers * demand.cpus_per_worker, num_workers * demand.gpus_per_worker)


def sum_of(amounts: Iterable[Amount]) -> Amount:
    """All of them together."""
    cpus = gpus = 0.0
    for amount in amounts:
        cpus += amount.cpus
        gpus += amount.gpus
    return Amount(cpus, gpus)


def num_slots(free: Amount, demand: Demand) -> int:
    """Workers that a node has room for."""
    by_cpus = int((free.cpus + EPSILON) / demand.cpus_per_worker)
    if not demand.gpus_per_worker:
        return max(by_cpus, 0)
    return max(min(by_cpus, int((free.gpus + EPSILON) / demand.gpus_per_worker)), 0)
