"""How much of the cluster is left, by sum and node by node. Changed only by the plan that is being made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from service.queueing.demand import Demand
from service.queueing.records import Active, Cluster

EPSILON = 1e-6
"""Ray counts in ten-thousandths, and sums of such fractions are not exact."""


@dataclass(frozen=True)
class Amount:
    """Some of the cluster."""

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

    def least(self, other: Amount) -> Amount:
        """The smaller of each."""
        return Amount(min(self.cpus, other.cpus), min(self.gpus, other.gpus))


def amount_of(demand: Demand) -> Amount:
    """What a job holds."""
    return Amount(demand.num_cpus, demand.num_gpus)


def total_of(jobs: Iterable[Active]) -> Amount:
    """What jobs hold together."""
    total = Amount()
    for job in jobs:
        total += amount_of(job.demand)
    return total


class Room:
    """What is free, by two accounts, of which the smaller counts.

    Ray's: free, less what jobs hold that have been admitted and are not seen there yet. And our own: all, less what the
    jobs that run have been promised; between two stages a job holds nothing, and will want its place back.
    """

    def __init__(self, cluster: Cluster, active: Iterable[Active]) -> None:
        self._sizes = tuple((node.num_cpus, node.num_gpus) for node in cluster.nodes)
        self._nodes = [[node.free_cpus, node.free_gpus] for node in cluster.nodes]
        active = tuple(active)
        unseen = [job for job in active if not job.is_seen]
        free = Amount(sum(cpus for cpus, _ in self._nodes), sum(gpus for _, gpus in self._nodes))
        self.promised = Amount(cluster.num_cpus, cluster.num_gpus) - total_of(active)
        """What our own jobs have left."""
        self.left = (free - total_of(unseen)).least(self.promised)
        for job in unseen:
            self._place(job.demand)

    def fitted(self, demand: Demand) -> Demand | None:
        """The demand as the whole cluster, empty, can meet it; None if it never can."""
        return demand.within(sum(_slots(cpus, gpus, demand) for cpus, gpus in self._sizes))

    def fits(self, demand: Demand, kept: Amount) -> bool:
        """Whether all workers of a job have room now, beside what is kept for another."""
        slots = sum(_slots(cpus, gpus, demand) for cpus, gpus in self._nodes)
        return (self.left - kept).holds(demand) and slots >= demand.num_workers

    def take(self, demand: Demand) -> None:
        """A job starts."""
        self.left -= amount_of(demand)
        self.promised -= amount_of(demand)
        self._place(demand)

    def _place(self, demand: Demand) -> None:
        """Put workers on nodes, the fullest first: so that large jobs still find whole nodes."""
        wanted = demand.num_workers
        for node in sorted(self._nodes, key=lambda one: (one[1], one[0])):
            placed = min(wanted, _slots(node[0], node[1], demand))
            node[0] -= placed * demand.cpus_per_worker
            node[1] -= placed * demand.gpus_per_worker
            wanted -= placed


def _slots(cpus: float, gpus: float, demand: Demand) -> int:
    """Workers that a node has room for."""
    by_cpus = int((cpus + EPSILON) / demand.cpus_per_worker)
    if not demand.gpus_per_worker:
        return max(by_cpus, 0)
    return max(min(by_cpus, int((gpus + EPSILON) / demand.gpus_per_worker)), 0)
