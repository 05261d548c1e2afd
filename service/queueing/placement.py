"""On which nodes the workers of a job come to lie. Pure.

A job's workers are one placement group of Ray's, with the strategy PACK, which is Ray Train's own: on as few nodes as
it can, on several where it must. So a job can be placed if the nodes together have room for each of its workers whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.queueing.amounts import Amount, num_slots, workers_amount
from service.queueing.demand import Demand


def pack(demand: Demand, free: Sequence[Amount]) -> list[int] | None:
    """How many workers Ray puts on each node; None where not all have room.

    Ray takes the node of which most stays free, as a fraction of what was free and added up over CPUs and GPUs, puts
    as many workers there as it holds, and goes on with the next.

    Source: Ray 2.60, `BundlePackSchedulingPolicy` with `LeastResourceScorer`.
    """
    slots = [num_slots(amount, demand) for amount in free]
    wanted = demand.num_workers
    if sum(slots) < wanted:
        return None
    placed = [0] * len(free)
    order = sorted(
        (number for number, has in enumerate(slots) if has), key=lambda number: -_stays(free[number], demand)
    )
    for number in order:
        placed[number] = min(wanted, slots[number])
        wanted -= placed[number]
        if not wanted:
            break
    return placed


def gather(demand: Demand, preferred: Sequence[Amount], room: Sequence[Amount]) -> list[int]:
    """How many workers to think of on each node, at most as many as it has `room` for: first where most of what they
    want is there already.
    """
    wanted = demand.num_workers
    placed = [0] * len(room)
    for number in sorted(range(len(room)), key=lambda number: -_has(preferred[number], demand)):
        placed[number] = min(wanted, num_slots(room[number], demand))
        wanted -= placed[number]
    return placed


def take(free: list[Amount], demand: Demand, placed: Sequence[int]) -> None:
    """Subtract what the workers hold."""
    for number, count in enumerate(placed):
        if count:
            free[number] -= workers_amount(demand, count)


def _stays(free: Amount, demand: Demand) -> float:
    cpus = (free.cpus - demand.cpus_per_worker) / free.cpus
    return cpus + ((free.gpus - demand.gpus_per_worker) / free.gpus if demand.gpus_per_worker else 0.0)


def _has(free: Amount, demand: Demand) -> float:
    """Workers that it has room for, with parts of one."""
    cpus = free.cpus / demand.cpus_per_worker
    return min(cpus, free.gpus / demand.gpus_per_worker) if demand.gpus_per_worker else cpus
