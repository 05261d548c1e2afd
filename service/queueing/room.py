"""How much of the cluster is left, node by node. Changed only by the plan that is being made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from service.queueing.amounts import Amount, amount_of, num_slots, sum_of, workers_amount
from service.queueing.demand import Demand
from service.queueing.placement import gather, pack, take
from service.queueing.records import Active, Cluster, Departed, Holding

_NONE = Amount()


class Room:
    """What is free on each node, by two accounts, of which the smaller counts.

    Ray's: free, less what jobs will hold that have been admitted and are not seen there yet. And our own: all, less
    what the jobs that run have been promised; between two stages a job holds nothing, and will want its place back.

    Of placement groups Ray says on which node they are. Who holds the rest of what is used is not known: what a job
    that is in none frees by leaving is bounded from above and from below, each node for itself.
    """

    def __init__(self, cluster: Cluster, active: Iterable[Active], departed: Iterable[Departed] = ()) -> None:
        """`departed`: jobs that have left and that Ray's figures may still be of."""
        self._sizes = [Amount(node.num_cpus, node.num_gpus) for node in cluster.nodes]
        self._places = {node.node_id: number for number, node in enumerate(cluster.nodes) if node.node_id}
        self._now = [Amount(node.free_cpus, node.free_gpus) for node in cluster.nodes]
        self._demands = {job.job_id: self.fitted(job.demand) or job.demand for job in active}
        self._held: dict[str, list[Amount]] = {}
        """On each node, of the jobs of which that is known."""
        self._gone = [_NONE] * len(self._sizes)
        """Held by jobs that have left, as far as it is known."""
        self._gone_unlocated = _NONE
        """The same of those of which it is not known where they were."""
        self._may_any_be_gone = False
        """Some job may have left of which nothing is known."""
        used = [(size - free).clipped() for size, free in zip(self._sizes, self._now, strict=True)]
        for one in departed:
            held = self._on_nodes(one.held)
            self._gone = _added(self._gone, held or [])
            if held is None and one.demand is None:
                self._may_any_be_gone = True
            elif held is None and one.demand is not None:
                self._gone_unlocated += amount_of(self.fitted(one.demand) or one.demand)
        for job in active:
            held = self._on_nodes(job.held) if job.is_seen else None
            if held is not None:
                self._held[job.job_id] = held
        known = _added(self._gone, *self._held.values())
        self._unknown = [(all_of - some).clipped() for all_of, some in zip(used, known, strict=True)]
        """Used on each node, nobody knows by whom."""
        unlocated = [job for job in active if job.is_seen and job.job_id not in self._held]
        self._unlocated = {job.job_id: amount_of(self._demands[job.job_id]) for job in unlocated}
        ours = sum_of([self._gone_unlocated, *self._unlocated.values()])
        self._strange = (sum_of(self._unknown) - ours).clipped()
        """At least so much of it is no job's of ours."""
        self._owed = _NONE
        """To jobs that have been admitted, beyond what is free."""
        for job in active:
            if not job.is_seen:
                self._held[job.job_id] = self._take_now(self._demands[job.job_id])
        self._own = list(self._sizes)
        self._promised = {job.job_id: self._promise(job.job_id) for job in active}
        self._total = sum_of(self._sizes) - sum_of(map(amount_of, self._demands.values()))
        self._kept = [_NONE] * len(self._sizes)
        self._claimed = [_NONE] * len(self._sizes)

    @property
    def left(self) -> Amount:
        """By the sum."""
        return (sum_of(self._now) - self._owed).least(self._total)

    def fitted(self, demand: Demand) -> Demand | None:
        """The demand as the whole cluster, empty, can meet it; None if it never can."""
        return demand.within(sum(num_slots(size, demand) for size in self._sizes))

    def held_by(self, job_id: str) -> Demand:
        """What a job holds of a cluster of this size."""
        return self._demands[job_id]

    def fits(self, demand: Demand, *, beside_kept: bool = True) -> bool:
        """Whether all workers of a job have room now, and leave alone what is kept where Ray puts them."""
        free = self._free()
        kept = self._kept if beside_kept else [_NONE] * len(free)
        placed = pack(demand, free)
        if placed is None or not (self.left - sum_of(kept)).holds(demand):
            return False
        rest = list(free)
        take(rest, demand, placed)
        return all(rest[number].covers(kept[number]) for number, count in enumerate(placed) if count)

    def take(self, demand: Demand) -> None:
        """A job starts, which fits."""
        placed = pack(demand, self._free())
        assert placed is not None
        take(self._now, demand, placed)
        take(self._own, demand, placed)
        self._total -= amount_of(demand)

    def will_fit(self, demand: Demand, leaving: Collection[str], *, certainly: bool) -> bool:
        """Whether a job has room once those have left, and those that have left already are out of Ray's figures,
        beside what has been claimed.

        Args:
            demand: of the job.
            leaving: ids of jobs that hold a place.
            certainly: wherever those are of which it is not known; otherwise, wherever suits best.
        """
        after = self._after(leaving, certainly)
        if sum(num_slots(amount, demand) for amount in after) < demand.num_workers:
            return False
        claimed = sum_of(self._claimed)
        freed = sum_of(amount_of(self._demands[job_id]) for job_id in leaving)
        if not (self._total + freed - claimed).holds(demand):
            return False
        if self._may_any_be_gone and not certainly:
            return True
        known = sum_of(sum_of(self._held[one]) for one in leaving if one in self._held)
        freed = sum_of(self._gone) + known + self._going_unlocated(leaving)
        return (sum_of(self._now) - self._owed + freed - claimed).holds(demand)

    def claim(self, demand: Demand, leaving: Collection[str], *, certainly: bool) -> None:
        """What leaves, leaves for this job, and what is free of what it wants is kept for it, on the nodes on which it
        will have room the soonest.
        """
        free = [(now - kept).clipped() for now, kept in zip(self._free(), self._kept, strict=True)]
        for number, count in enumerate(gather(demand, free, self._after(leaving, certainly))):
            wanted = workers_amount(demand, count)
            self._claimed[number] += wanted
            self._kept[number] += wanted.least(free[number])

    # ── reckoning ─────────────────────────────────────────────────────────────────────────────────────────────────

    def is_located(self, job_id: str) -> bool:
        """Whether it is known on which nodes a job is."""
        return job_id in self._held

    def _free(self) -> list[Amount]:
        return [now.least(own).clipped() for now, own in zip(self._now, self._own, strict=True)]

    def _after(self, leaving: Collection[str], certainly: bool) -> list[Amount]:
        """What will be free of each node, less what has been claimed of it."""
        now = _added(self._now, self._gone, *(self._held[one] for one in leaving if one in self._held))
        now = _added(now, self._freed_somewhere(leaving, certainly))
        own = _added(self._own, *(self._promised[one] for one in leaving))
        sides = zip(now, own, self._sizes, self._claimed, strict=True)
        return [(one.least(other).least(size) - claimed).clipped() for one, other, size, claimed in sides]

    def _freed_somewhere(self, leaving: Collection[str], certainly: bool) -> list[Amount]:
        """Of each node, by jobs of which it is not known where they are."""
        going = self._going_unlocated(leaving)
        if not certainly:
            return list(self._unknown) if self._may_any_be_gone else [used.least(going) for used in self._unknown]
        # All the others, and the programs that are not ours, may be on this very node.
        others = sum_of(self._unlocated.values()) + self._gone_unlocated - going + self._strange
        return [(used - others).clipped() for used in self._unknown]

    def _going_unlocated(self, leaving: Collection[str]) -> Amount:
        going = (self._unlocated[one] for one in leaving if one in self._unlocated)
        return sum_of([self._gone_unlocated, *going])

    def _on_nodes(self, held: Sequence[Holding]) -> list[Amount] | None:
        """By the numbers of the nodes; None where nothing is known."""
        found = [_NONE] * len(self._sizes)
        here = [one for one in held if one.node_id in self._places]
        for one in here:
            found[self._places[one.node_id]] += Amount(one.num_cpus, one.num_gpus)
        return found if here else None

    def _take_now(self, demand: Demand) -> list[Amount]:
        """Put workers where Ray will; as many as there is room for, which may be none."""
        placed = pack(demand, [free.clipped() for free in self._now])
        if placed is None:
            placed = gather(demand, self._now, self._now)
            self._owed += workers_amount(demand, demand.num_workers - sum(placed))
        take(self._now, demand, placed)
        return [workers_amount(demand, count) for count in placed]

    def _promise(self, job_id: str) -> list[Amount]:
        """Take a job's workers from our own account: those of which it is known where, and the others where most is
        used, for there they may well be.
        """
        demand = self._demands[job_id]
        held = self._held.get(job_id, [_NONE] * len(self._sizes))
        self._own = [own - some for own, some in zip(self._own, held, strict=True)]
        missing = demand.num_workers - round(sum_of(held).cpus / demand.cpus_per_worker)
        if missing <= 0:
            return held
        used = [size - free for size, free in zip(self._sizes, self._now, strict=True)]
        left = [own.clipped() for own in self._own]
        rest = demand.model_copy(update={"num_workers": missing})
        placed = gather(rest, [one.least(other) for one, other in zip(used, left, strict=True)], left)
        take(self._own, rest, placed)
        return [some + workers_amount(rest, count) for some, count in zip(held, placed, strict=True)]


def _added(amounts: Sequence[Amount], *more: Sequence[Amount]) -> list[Amount]:
    """Node by node; an empty one is nothing."""
    total = list(amounts)
    for other in more:
        for number, amount in enumerate(other):
            total[number] += amount
    return total
