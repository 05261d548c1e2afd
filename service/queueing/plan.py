"""The plan of the queue: who starts now, who makes room, and why each of the others waits. Pure.

Jobs are looked at by priority, the highest first; of equals by their owner's share, the least first; and then by age. A
job starts if its owner's and its project's quota, the number of places and the room all allow it, whole or not at all.

What a job does not get, others behind it may take, with one exception: for the first job that has waited long for room,
and for one that jobs are leaving for, what is free of what it wants is kept, on the nodes on which it will have room. A
job of strictly higher priority that does not fit has jobs of lower priority paused, if it is certain that their going
makes room for each of its workers.

A job is named to others of its own project alone: whoever sees what is said of one sees that project.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from service.queueing.amounts import Amount, amount_of, sum_of, workers_amount
from service.queueing.demand import Demand
from service.queueing.quotas import Used, quota_in_the_way
from service.queueing.records import (
    Active,
    Cluster,
    Departed,
    Plan,
    Preemption,
    Quotas,
    Rules,
    Wait,
    Waiting,
    WaitReason,
)
from service.queueing.room import Room
from service.queueing.shares import dominant_share
from service.queueing.victims import choose_victims


def make_plan(
    queued: Sequence[Waiting],
    active: Sequence[Active],
    cluster: Cluster | None,
    quotas: Quotas,
    recent_shares: Mapping[str, float],
    rules: Rules,
    now: datetime,
    *,
    departed: Sequence[Departed] = (),
) -> Plan:
    """What to do now.

    Args:
        queued: jobs in the queue.
        active: jobs that hold a place.
        cluster: as Ray described it; None where it did not.
        quotas: of owners and projects.
        recent_shares: of owners, of late; who is not there has used nothing.
        rules: how the service is set.
        now: the time.
        departed: jobs that have left, and that Ray's figures may still be of. Their room is waited for before anybody
            is paused.
    """
    planner = _Planner(active, cluster, quotas, recent_shares, rules, now, departed)
    remaining = planner.in_order(queued)
    while remaining:
        job = remaining.pop(0)
        if planner.look_at(job) and remaining:
            remaining = planner.in_order(remaining)  # its owner's share has grown
    return Plan(tuple(planner.admitted), tuple(planner.preempted), tuple(planner.waits))


class _Planner:
    def __init__(
        self,
        active: Sequence[Active],
        cluster: Cluster | None,
        quotas: Quotas,
        recent_shares: Mapping[str, float],
        rules: Rules,
        now: datetime,
        departed: Sequence[Departed],
    ) -> None:
        self.admitted: list[str] = []
        self.preempted: list[Preemption] = []
        self.waits: list[Wait] = []
        self._active = {job.job_id: job for job in active}
        self._rules = rules
        self._quotas = quotas
        self._recent = recent_shares
        self._now = now
        self._have_some_departed = bool(departed)
        self._room = None if cluster is None or not rules.checks_room else Room(cluster, active, departed)
        held = {job.job_id: self._held_by(job) for job in active}
        whole = sum_of(held.values()) if cluster is None else Amount(cluster.num_cpus, cluster.num_gpus)
        self._has = whole
        self._whole = Amount(max(whole.cpus, 1.0), max(whole.gpus, 1.0))
        self._used = Used(active)
        self._shares: dict[str, Amount] = {}
        for job in active:
            self._add_share(job.owner, held[job.job_id])
        self._places = rules.max_running_jobs - len(active)
        # Who leaves, and how many of their places are promised to a job already.
        self._leaving = {job.job_id for job in active if job.is_leaving}
        self._places_claimed = self._places_kept = 0
        self._kept_for: Waiting | None = None
        self._has_reservation = False
        self._refused: dict[tuple[object, ...], bool] = {}
        """What did not fit and what had nobody to pause, since anything changed: of a thousand equal jobs one is asked
        for."""

    def in_order(self, jobs: Sequence[Waiting]) -> list[Waiting]:
        """As they are looked at."""
        shares = {owner: self.share(owner) for owner in {job.owner for job in jobs}}
        return sorted(jobs, key=lambda job: (-job.priority, shares[job.owner], job.created_at, job.job_id))

    def share(self, owner: str) -> float:
        """What an owner holds now, and has held of late."""
        return dominant_share(self._shares.get(owner, Amount()), self._whole) + self._recent.get(owner, 0.0)

    def look_at(self, job: Waiting) -> bool:
        """Admit a job, or say why not; whether it was admitted."""
        if job.is_backed_off:
            return self._wait(job, WaitReason.BACKOFF, "Starting it went wrong; it is tried again within a minute.")
        demand: Demand | None = job.demand
        if self._room is not None:
            demand = self._room.fitted(job.demand)
        broken = quota_in_the_way(self._quotas, self._used, job)
        if broken is not None:
            return self._wait(job, *broken)
        if self._rules.checks_room and self._room is None:
            return self._wait(job, WaitReason.CLUSTER_UNKNOWN, "Ray does not say now what is free.")
        if demand is None:
            return self._wait(job, WaitReason.CLUSTER_TOO_SMALL, self._too_small(job.demand))
        if self._fits(demand):
            return self._admit(job, demand)
        reason, message = self._why_not(job, demand)
        return self._wait(job, reason, f"{message}{self._make_room(job, demand)}")

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _fits(self, demand: Demand) -> bool:
        if self._places - self._places_kept <= 0:
            return False
        if self._room is None:
            return True
        if ("fits", demand) in self._refused:
            return False
        fits = self._room.fits(demand)
        if not fits:
            self._refused["fits", demand] = True
        return fits

    def _why_not(self, job: Waiting, demand: Demand) -> tuple[WaitReason, str]:
        if self._places <= 0:
            limit = self._rules.max_running_jobs
            return WaitReason.MAX_RUNNING_JOBS, f"The service runs {limit} jobs at a time at most."
        if self._room is None or self._room.fits(demand, beside_kept=False):
            return WaitReason.BEHIND, f"There is room, which is kept for {_named(self._kept_for, job)}."
        free = self._room.left.clipped()
        where = ", but not on nodes that have room for each of its workers" if free.holds(demand) else ""
        wanted = _amount_text(amount_of(demand))
        return WaitReason.CLUSTER_BUSY, f"It wants {wanted} at once, and {_amount_text(free)} are free{where}."

    def _too_small(self, demand: Demand) -> str:
        wanted = _amount_text(workers_amount(demand, demand.group_workers))
        has = _amount_text(self._has)
        return f"It wants {wanted} at once; the cluster has {has}, and its nodes no room for all its workers."

    def _held_by(self, job: Active) -> Amount:
        return amount_of(job.demand if self._room is None else self._room.held_by(job.job_id))

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, job: Waiting, demand: Demand) -> bool:
        self.admitted.append(job.job_id)
        self._used.add(job.owner, job.project, job.demand)
        self._add_share(job.owner, amount_of(demand))
        self._places -= 1
        if self._room is not None:
            self._room.take(demand)
        self._refused.clear()
        return True

    def _add_share(self, owner: str, amount: Amount) -> None:
        self._shares[owner] = self._shares.get(owner, Amount()) + amount

    def _wait(self, job: Waiting, reason: WaitReason, message: str) -> bool:
        self.waits.append(Wait(job.job_id, reason, message, len(self.waits) + 1))
        return False

    def _make_room(self, job: Waiting, demand: Demand) -> str:
        """Keep what is free for a job that comes next, and have others leave for it where that is due. A sentence."""
        victims: tuple[Active, ...] = ()
        if self._will_fit(demand, ()):
            if self._is_moving:
                self._claim(job, demand, self._leaving)
                return " Room is being made for it."
        elif self._rules.preempts:
            victims = self._victims(job, demand)
        if victims:
            self.preempted += [Preemption(one.job_id, job.job_id, one.project == job.project) for one in victims]
            self._leaving |= {one.job_id for one in victims}
            self._claim(job, demand, self._leaving, certainly=True)
            return f" {_all_named(victims, job)} {'makes' if len(victims) == 1 else 'make'} room for it."
        is_due = not self._has_reservation and self._now - job.queued_at >= self._rules.reservation
        # Where somebody else's program holds what is missing, no job of ours makes the room by ending: to keep what is
        # free would hold up all others, for ever.
        if is_due and self._will_fit(demand, list(self._active.values())):
            self._has_reservation = True
            self._claim(job, demand, self._active.keys())
            return " What comes free is kept for it."
        return ""

    @property
    def _is_moving(self) -> bool:
        """Some jobs leave, or have left and may still be in Ray's figures."""
        return len(self._leaving) > self._places_claimed or self._have_some_departed

    def _victims(self, job: Waiting, demand: Demand) -> tuple[Active, ...]:
        key = ("victims", job.priority, demand)
        if key in self._refused:
            return ()
        lower = [
            one
            for one in self._active.values()
            if one.is_preemptible and one.job_id not in self._leaving and one.priority < job.priority
        ]
        chosen: tuple[Active, ...] = ()
        if lower:
            likely = choose_victims(lower, lambda some: self._will_fit(demand, some))
            if likely and self._will_fit(demand, likely, certainly=True):
                chosen = likely
            elif likely:
                chosen = self._certain_victims(lower, demand, len(likely))
        if not chosen:
            self._refused[key] = True
        return chosen

    def _certain_victims(self, lower: Sequence[Active], demand: Demand, fewest: int) -> tuple[Active, ...]:
        """Where it is not known where the likeliest are: others, of which it is, or as few of which it is not."""
        chosen = choose_victims(lower, lambda some: self._will_fit(demand, some, certainly=True))
        if self._room is None or len(chosen) <= fewest or all(self._room.is_located(one.job_id) for one in chosen):
            return chosen
        return ()

    def _will_fit(self, demand: Demand, victims: Sequence[Active], *, certainly: bool = False) -> bool:
        """Whether a job fits once all have left who are on their way, and these."""
        leaving = self._leaving | {one.job_id for one in victims}
        if self._places + len(leaving) - self._places_claimed <= 0:
            return False
        return self._room is None or self._room.will_fit(demand, leaving, certainly=certainly)

    def _claim(self, job: Waiting, demand: Demand, leaving: Collection[str], *, certainly: bool = False) -> None:
        """What leaves, leaves for this job, and what is free of what it wants is kept: nobody behind it takes that."""
        self._places_claimed += 1
        self._kept_for = self._kept_for or job
        if self._places > self._places_kept:
            self._places_kept += 1
        if self._room is not None:
            self._room.claim(demand, leaving, certainly=certainly)
        self._refused.clear()


def _amount_text(amount: Amount) -> str:
    return f"{amount.cpus:g} CPUs" + (f" and {amount.gpus:g} GPUs" if amount.gpus else "")


def _named(job: Waiting | None, reader: Waiting) -> str:
    return job.job_id if job is not None and job.project == reader.project else "a job of another project"


def _all_named(jobs: Sequence[Active], reader: Waiting) -> str:
    """Ids of those of the reader's project, and the number of the others."""
    named = [job.job_id for job in jobs if job.project == reader.project]
    num_others = len(jobs) - len(named)
    if num_others:
        others = "a job of another project" if num_others == 1 else f"{num_others} jobs of other projects"
        named.append(others if named else others[:1].upper() + others[1:])
    return ", ".join(named)
