"""The plan of the queue: who starts now, who makes room, and why each of the others waits. Pure.

Jobs are looked at by priority, the highest first; of equals by their owner's share, the least first; and then by age. A
job starts if its owner's and its project's quota, the number of places and the room all allow it, whole or not at all.

What a job does not get, others behind it may take, with one exception: for the first job that has waited long for room,
and for one that jobs are leaving for, what is free of what it wants is kept. A job of strictly higher priority that
does not fit has jobs of lower priority paused, if that makes room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from service.queueing.demand import Demand
from service.queueing.quotas import Used, quota_in_the_way
from service.queueing.records import (
    Active,
    Cluster,
    Plan,
    Preemption,
    Quotas,
    Rules,
    Wait,
    Waiting,
    WaitReason,
)
from service.queueing.room import Amount, Room, amount_of, total_of
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
    is_settled: bool = True,
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
        is_settled: no job has left a moment ago, so Ray's figures are of the jobs that are there. Nothing is preempted
            until they are.
    """
    planner = _Planner(active, cluster, quotas, recent_shares, rules, now, is_settled)
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
        is_settled: bool,
    ) -> None:
        self.admitted: list[str] = []
        self.preempted: list[Preemption] = []
        self.waits: list[Wait] = []
        self._active = active
        self._rules = rules
        self._quotas = quotas
        self._recent = recent_shares
        self._now = now
        self._is_settled = is_settled
        self._room = None if cluster is None else Room(cluster, active)
        whole = total_of(active) if cluster is None else Amount(cluster.num_cpus, cluster.num_gpus)
        self._has = whole
        self._whole = Amount(max(whole.cpus, 1.0), max(whole.gpus, 1.0))
        self._used = Used(active)
        self._places = rules.max_running_jobs - len(active)
        # What will be free soon, and what of it is promised to a job already.
        leaving = [job for job in active if job.is_leaving]
        self._leaving, self._places_leaving = total_of(leaving), len(leaving)
        self._claimed, self._places_claimed = Amount(), 0
        self._kept, self._places_kept, self._kept_for = Amount(), 0, ""
        self._has_reservation = False

    def in_order(self, jobs: Sequence[Waiting]) -> list[Waiting]:
        """As they are looked at."""
        shares = {owner: self.share(owner) for owner in {job.owner for job in jobs}}
        return sorted(jobs, key=lambda job: (-job.priority, shares[job.owner], job.created_at, job.job_id))

    def share(self, owner: str) -> float:
        """What an owner holds now, and has held of late."""
        return dominant_share(self._used.by_owner(owner), self._whole) + self._recent.get(owner, 0.0)

    def look_at(self, job: Waiting) -> bool:
        """Admit a job, or say why not; whether it was admitted."""
        if job.is_backed_off:
            return self._wait(job, WaitReason.BACKOFF, "Starting it went wrong; it is tried again within a minute.")
        demand: Demand | None = job.demand
        if self._room is not None and self._rules.checks_room:
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
        reason, message = self._why_not(demand)
        return self._wait(job, reason, f"{message}{self._make_room(job, demand)}")

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _fits(self, demand: Demand) -> bool:
        if self._places - self._places_kept <= 0:
            return False
        return not self._rules.checks_room or (self._room is not None and self._room.fits(demand, self._kept))

    def _why_not(self, demand: Demand) -> tuple[WaitReason, str]:
        if self._places <= 0:
            limit = self._rules.max_running_jobs
            return WaitReason.MAX_RUNNING_JOBS, f"The service runs {limit} jobs at a time at most."
        has_room = not self._rules.checks_room or (self._room is not None and self._room.fits(demand, Amount()))
        if has_room:
            return WaitReason.BEHIND, f"There is room, which is kept for {self._kept_for}."
        assert self._room is not None
        free = self._room.left
        wanted = _amount_text(demand.num_cpus, demand.num_gpus)
        return (
            WaitReason.CLUSTER_BUSY,
            f"It wants {wanted} at once, and {_amount_text(max(free.cpus, 0.0), max(free.gpus, 0.0))} are free.",
        )

    def _too_small(self, demand: Demand) -> str:
        wanted = _amount_text(
            demand.group_workers * demand.cpus_per_worker, demand.group_workers * demand.gpus_per_worker
        )
        has = _amount_text(self._has.cpus, self._has.gpus)
        return f"It wants {wanted} at once; the cluster has {has}, and its nodes no room for all its workers."

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, job: Waiting, demand: Demand) -> bool:
        self.admitted.append(job.job_id)
        self._used.add(job.owner, job.project, job.demand)
        self._places -= 1
        if self._room is not None:
            self._room.take(demand)
        return True

    def _wait(self, job: Waiting, reason: WaitReason, message: str) -> bool:
        self.waits.append(Wait(job.job_id, reason, message, len(self.waits) + 1))
        return False

    def _make_room(self, job: Waiting, demand: Demand) -> str:
        """Keep what is free for a job that comes next, and have others leave for it where that is due. A sentence."""
        victims: tuple[Active, ...] = ()
        if self._will_fit(demand, ()):
            if self._is_moving:
                self._claim(job, demand)
                return " Room is being made for it."
            # The sum is there, on too many nodes. Nobody knows who runs where, so nobody is made to leave for it.
        elif self._rules.preempts and self._is_settled:
            victims = self._victims(job, demand)
        if victims:
            self.preempted += [Preemption(one.job_id, job.job_id) for one in victims]
            self._leaving += total_of(victims)
            self._places_leaving += len(victims)
            self._claim(job, demand)
            return (
                f" {', '.join(one.job_id for one in victims)} {'makes' if len(victims) == 1 else 'make'} room for it."
            )
        is_due = not self._has_reservation and self._now - job.queued_at >= self._rules.reservation
        # Where somebody else's program holds what is missing, no job of ours makes the room by ending: to keep what is
        # free would hold up all others, for ever.
        if is_due and self._will_fit(demand, [one for one in self._active if not one.is_leaving]):
            self._has_reservation = True
            self._claim(job, demand)
            return " What comes free is kept for it."
        return ""

    @property
    def _is_moving(self) -> bool:
        """Some jobs leave, or have left and are still in Ray's figures."""
        return self._places_leaving > self._places_claimed or not self._is_settled

    def _victims(self, job: Waiting, demand: Demand) -> tuple[Active, ...]:
        gone = {one.job_id for one in self.preempted}
        lower = [
            one
            for one in self._active
            if one.is_preemptible and not one.is_leaving and one.priority < job.priority and one.job_id not in gone
        ]
        return choose_victims(lower, lambda chosen: self._will_fit(demand, chosen)) if lower else ()

    def _will_fit(self, demand: Demand, victims: Sequence[Active]) -> bool:
        """Whether a job fits once all have left who are on their way, and these; by the sum, as nobody knows of which
        node. While Ray's figures are still of jobs that have left, our own account says it.
        """
        places = self._places + self._places_leaving - self._places_claimed + len(victims)
        if places <= 0:
            return False
        if not self._rules.checks_room:
            return True
        assert self._room is not None
        now = self._room.left if self._is_settled else self._room.promised
        return (now + self._leaving - self._claimed + total_of(victims)).holds(demand)

    def _claim(self, job: Waiting, demand: Demand) -> None:
        """What leaves, leaves for this job, and what is free of what it wants is kept."""
        self._claimed += amount_of(demand)
        self._places_claimed += 1
        self._keep(job, demand)

    def _keep(self, job: Waiting, demand: Demand) -> None:
        """Let nobody behind it take what is free of what it wants."""
        self._kept_for = self._kept_for or job.job_id
        if self._places > self._places_kept:
            self._places_kept += 1
        if self._room is not None:
            free = self._room.left - self._kept
            wanted = amount_of(demand).least(Amount(max(free.cpus, 0.0), max(free.gpus, 0.0)))
            self._kept += wanted


def _amount_text(cpus: float, gpus: float) -> str:
    return f"{cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
