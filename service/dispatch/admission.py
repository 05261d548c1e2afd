"""From rows to the plan of the queue, and back: what the plan is made from, and what is kept of it.

All that matters is in rows. What is remembered here beside them, who held a place in the round before and when use was
last added up, is forgotten without harm: for some seconds room is waited for that somebody may have left, and some
seconds of use do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from service.interfaces import Capacity, QueueStore
from service.queueing.amounts import Amount
from service.queueing.limits import read_quotas, read_rules
from service.queueing.plan import make_plan
from service.queueing.reckoning import demand_of_json
from service.queueing.records import Active, Cluster, Departed, Plan, Waiting
from service.queueing.room import Room
from service.queueing.shares import recent_share, with_use
from service.records import Job
from service.settings import Settings
from service.states import JobState

MAX_LOOKED_AT_PER_KIND = 100
"""Of jobs of one owner, project, priority and demand, which start or wait for the same reasons."""
MAX_LOOKED_AT = 2000
SETTLE_SECONDS = 15.0
"""After a job has left, Ray's figures are taken to be those of before for so long at most, where its reports cannot be
told apart: there is one every five seconds."""
SETTLE_REPORTS = 2
"""The first report after a job has left may have been made before; the second was not."""
ACCOUNT_SECONDS = 10.0
"""Between two sums of what owners use."""
MAX_GAP_SECONDS = 60.0
"""A longer time was not watched: the process or the whole machine stood still."""


@dataclass(frozen=True)
class _Left:
    """Who left, when that was seen, and what the last report was by then."""

    departed: Departed
    at: datetime
    report_number: int | None


class Admission:
    """Makes the plan of each round."""

    def __init__(self, queue: QueueStore, settings: Settings, now: Callable[[], datetime]) -> None:
        self._queue = queue
        self._settings = settings
        self._now = now
        self._half_life = timedelta(seconds=settings.fair_share_half_life_seconds)
        self._held_places: dict[str, Departed] | None = None
        """Who held a place in the round before, as it will be remembered once it has left."""
        self._left: list[_Left] = []
        self._accounted_at: datetime | None = None

    def queued(self) -> list[Job]:
        """Jobs to plan for."""
        return self._queue.list_queue(MAX_LOOKED_AT_PER_KIND, MAX_LOOKED_AT)

    def active(self, lingering: Sequence[Job], capacity: Capacity | None) -> list[Job]:
        """Jobs that hold a place. To be called once a round: who holds one no more has left since the round before.

        Args:
            lingering: jobs that are over, and whose process may live on.
            capacity: as Ray last told it.
        """
        jobs = self._queue.list_active()
        known = {job.job_id for job in jobs}
        jobs += [job for job in lingering if job.job_id not in known]
        self._note_who_left(jobs, capacity)
        self._account(jobs, capacity)
        return jobs

    def plan(
        self,
        queued: Sequence[Job],
        active: Sequence[Job],
        cluster: Cluster | None,
        capacity: Capacity | None,
        backed_off: Collection[str],
    ) -> Plan:
        """What to do now; `backed_off` are left alone for a while. `cluster`: that of `capacity`, grown."""
        now = self._now()
        whole = Amount() if cluster is None else Amount(cluster.num_cpus, cluster.num_gpus)
        usages = self._queue.usages()
        return make_plan(
            [_waiting(job, job.job_id in backed_off) for job in queued],
            [_active(job, self._settings, now, capacity) for job in active],
            cluster,
            read_quotas(self._settings, self._queue.list_quotas()),
            {owner: recent_share(usage, now, self._half_life, whole) for owner, usage in usages.items()},
            read_rules(self._settings),
            now,
            departed=[one.departed for one in self._left],
        )

    def keep_waits(self, plan: Plan, queued: Sequence[Job]) -> None:
        """Write down why jobs wait, of those for which that has changed."""
        before = {job.job_id: (job.waiting_reason, job.waiting_message, job.queue_position) for job in queued}
        self._queue.save_waits(
            [wait for wait in plan.waits if before[wait.job_id] != (wait.reason.value, wait.message, wait.position)]
        )

    def look_away(self) -> None:
        """Another replica reconciles, and knows better."""
        self._held_places = self._accounted_at = None
        self._left = []

    def _note_who_left(self, jobs: Sequence[Job], capacity: Capacity | None) -> None:
        now, number = self._now(), None if capacity is None else capacity.report_number
        self._left = [one for one in self._left if not _is_settled(one, now, number)]
        places: dict[str, Departed] = {}
        for job in jobs:
            active = _active(job, self._settings, now, capacity)
            before = (self._held_places or {}).get(job.job_id)
            held = active.held or (before.held if before is not None else ())
            places[job.job_id] = Departed(job.job_id, held, active.demand)
        if self._held_places is None:
            gone = [Departed("")]  # whoever reconciled before may have seen anybody leave
        else:
            gone = [one for job_id, one in self._held_places.items() if job_id not in places]
        self._left += [_Left(one, now, number) for one in gone]
        self._held_places = places

    def _account(self, active: Sequence[Job], capacity: Capacity | None) -> None:
        """Add up what owners have used since the last time."""
        now = self._now()
        if self._accounted_at is None:
            self._accounted_at = now
        seconds = (now - self._accounted_at).total_seconds()
        if seconds < ACCOUNT_SECONDS:
            return
        room = None if capacity is None or capacity.nodes is None else Room(Cluster(capacity.nodes), ())
        held = [_active(job, self._settings, now, capacity) for job in active]
        if room is not None and self._settings.check_room:
            # A search counts with the trials that the cluster has room for.
            held = [replace(one, demand=room.fitted(one.demand) or one.demand) for one in held]
        used = with_use(self._queue.usages(), held, min(seconds, MAX_GAP_SECONDS), now, self._half_life)
        if used:
            self._queue.save_usages(list(used.values()))
        self._accounted_at = now


def _is_settled(one: _Left, now: datetime, report_number: int | None) -> bool:
    """Whether Ray's figures are of a time after it left."""
    if now - one.at >= timedelta(seconds=SETTLE_SECONDS):
        return True
    if one.report_number is None or report_number is None:
        return False
    return report_number - one.report_number >= SETTLE_REPORTS


def _waiting(job: Job, is_backed_off: bool) -> Waiting:
    return Waiting(
        job_id=job.job_id,
        owner=job.owner,
        project=job.project,
        priority=job.priority,
        demand=job.demand or demand_of_json(job.spec_json),
        created_at=job.created_at,
        queued_at=job.queued_at or job.created_at,
        is_backed_off=is_backed_off,
    )


def _active(job: Job, settings: Settings, now: datetime, capacity: Capacity | None) -> Active:
    least_run = timedelta(seconds=settings.preemption_min_run_seconds)
    has_run = job.run_started_at is not None and now - job.run_started_at >= least_run
    has_spoken = job.progress is not None and job.progress.attempt == job.attempt
    wishes = (job.cancel_requested_at, job.pause_requested_at, job.stop_asked_at)
    is_stopping = job.state.is_terminal or any(asked_at is not None for asked_at in wishes)
    held = () if capacity is None else capacity.holdings.get(job.ray_submission_id or "", ())
    return Active(
        job_id=job.job_id,
        owner=job.owner,
        project=job.project,
        priority=job.priority,
        demand=job.demand or demand_of_json(job.spec_json),
        is_seen=job.state is not JobState.STARTING and has_spoken,
        held=held,
        is_leaving=job.state in (JobState.PAUSING, JobState.CANCELLING) or is_stopping,
        # What somebody else has started may need their surroundings, which the next attempt would not have.
        is_preemptible=job.state is JobState.RUNNING and not job.is_adopted and (not job.num_preemptions or has_run),
        run_started_at=job.run_started_at,
    )
