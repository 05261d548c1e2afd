"""The one loop that talks to Ray: it takes queued jobs there, watches them, and writes down what became of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import structlog

from service.dispatch.admission import Admission
from service.dispatch.adoption import Adoption
from service.dispatch.attempts import JobSteps
from service.dispatch.fencing import FencedJobFolders, FencedLauncher, FencedRuns
from service.dispatch.leadership import SoleLeader
from service.feeds.interfaces import Leadership, LeaseLostError
from service.interfaces import (
    Capacity,
    JobFolders,
    JobStore,
    Launcher,
    LauncherUnavailableError,
    QueueStore,
    Runs,
    StaleJobError,
)
from service.queueing.limits import grown
from service.queueing.records import Cluster
from service.records import ClusterStatus, Job
from service.settings import Settings

log = structlog.get_logger(__name__)

CLUSTER_INTERVAL_SECONDS = 10.0
"""Pause between two looks at the cluster's size."""
GATHER_SECONDS = 0.1
"""From being woken to the next round: a hundred jobs that are submitted one after the other make a few rounds, not a
hundred."""
MAX_BACKOFF_SECONDS = 60.0
SLOW_ROUND_SECONDS = 60.0
"""A round that takes longer is told in the log: wishes wait for the next one."""


@dataclass(frozen=True)
class _Backoff:
    failures: int
    until: float


class Reconciler:
    """Moves every job along, a round at a time."""

    def __init__(
        self,
        store: JobStore,
        launcher: Launcher,
        folders: JobFolders,
        runs: Runs,
        settings: Settings,
        *,
        queue: QueueStore,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        leadership: Leadership | None = None,
        after_round: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`leadership`: of several replicas one reconciles. `after_round`: given the seconds that each round took."""
        self._leadership = leadership or SoleLeader()
        self._after_round = after_round
        self._store = store
        self._launcher = launcher
        self._settings = settings
        self._now = now
        self._admission = Admission(queue, settings, now)
        fence = self._leadership.check
        fenced_launcher, fenced_folders = FencedLauncher(launcher, fence), FencedJobFolders(folders, fence)
        self._steps = JobSteps(store, fenced_launcher, fenced_folders, FencedRuns(runs, fence), settings, now)
        self._adoption = Adoption(store, fenced_launcher, fenced_folders, settings, now)
        self._backoffs: dict[str, _Backoff] = {}
        self._cluster: ClusterStatus | None = None
        self._cluster_seen_at = 0.0
        self._capacity: Capacity | None = None
        self._room: Cluster | None = None
        self._is_room_new = False
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._leadership.start(self.wake)
        self._thread.start()

    def stop(self, timeout_seconds: float = 15.0) -> None:
        """Stop after the step that is being made; jobs on Ray go on."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        self._leadership.stop()

    @property
    def fault(self) -> str | None:
        """What is wrong with this replica's own threads; None where nothing is."""
        if not self._thread.is_alive():
            return "The thread of the reconciler has ended."
        return self._leadership.fault

    def wake(self) -> None:
        """Begin the next round now: something has changed."""
        self._wake.set()

    def run_round(self) -> bool:
        """Look at every job once; whether any of them moved."""
        self._is_room_new = False
        self._look_at_cluster()
        moved = self._may_go_on() and self._steps.is_ray_reachable and self._adoption.look()
        for job in self._store.list_unsettled():
            if not self._may_go_on():
                return False
            moved |= self._guarded(self._steps.step, job)
        return self._admit() or moved

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            moved = False
            try:
                if self._leadership.begin_round():
                    started_at = time.monotonic()
                    moved = self.run_round()
                    seconds = time.monotonic() - started_at
                    if seconds > SLOW_ROUND_SECONDS:
                        log.warning("round_slow", seconds=round(seconds, 1))
                    self._after_round(seconds)
                else:
                    self._steps.look_away()
                    self._admission.look_away()
            except LeaseLostError as error:
                log.warning("round_given_up", reason=str(error))
            except Exception:  # the loop outlives a database that is away for a while
                log.exception("reconcile_round_failed")
            if not moved and self._wake.wait(self._settings.reconcile_interval_seconds):
                self._stop.wait(GATHER_SECONDS)

    def _admit(self) -> bool:
        queued = self._admission.queued()
        if queued and not self._is_room_new:  # nothing is admitted by what was free before this round
            self._look_again(self._now())
        active = self._admission.active(tuple(self._steps.lingering.values()), self._capacity)
        if not queued:
            return False
        plan = self._admission.plan(queued, active, self._room, self._capacity, self._backed_off())
        jobs = {job.job_id: job for job in (*queued, *active)}
        moved = False
        for job_id in plan.admit:
            moved |= self._may_go_on() and self._guarded(self._steps.take, jobs[job_id])
        for one in plan.preempt:
            preempt = partial(self._steps.preempt, for_job_id=one.for_job_id, is_same_project=one.is_same_project)
            moved |= self._may_go_on() and self._guarded(preempt, jobs[one.job_id])
        if self._may_go_on():
            self._admission.keep_waits(plan, queued)
        return moved

    def _backed_off(self) -> frozenset[str]:
        now = time.monotonic()
        return frozenset(job_id for job_id, backoff in self._backoffs.items() if now < backoff.until)

    def _may_go_on(self) -> bool:
        self._leadership.beat()
        return not self._stop.is_set() and self._leadership.is_held

    def _guarded(self, step: Callable[[Job], bool], job: Job) -> bool:
        """Make one job's step; what goes wrong with it is its own affair, and it is left alone for a while."""
        backoff = self._backoffs.get(job.job_id)
        if backoff is not None and time.monotonic() < backoff.until:
            return False
        with structlog.contextvars.bound_contextvars(job_id=job.job_id, attempt=job.attempt):
            try:
                moved = step(job)
            except LeaseLostError:
                raise  # not this job's fault: the whole round is over
            except StaleJobError:
                moved = True  # someone else moved it: look again at once
            except Exception:  # one job never stops the loop for others
                failures = 1 + (backoff.failures if backoff else 0)
                pause = min(MAX_BACKOFF_SECONDS, self._settings.reconcile_interval_seconds * 2.0 ** min(failures, 10))
                self._backoffs[job.job_id] = _Backoff(failures, time.monotonic() + pause)
                log.exception("reconcile_failed", state=job.state, failures=failures, pause_seconds=pause)
                return False
        self._backoffs.pop(job.job_id, None)
        return moved

    def _look_at_cluster(self) -> None:
        """Note for the desk that this loop is alive, whether Ray is, and how large it is."""
        known, now = self._cluster, self._now()
        is_due = time.monotonic() - self._cluster_seen_at >= CLUSTER_INTERVAL_SECONDS
        if known is None or is_due or not known.is_ray_reachable:
            # The heartbeat is written before Ray is asked too: the answer may take a while.
            if known is not None:
                self._store.save_cluster_status(replace(known, reconciled_at=now))
            known = self._look_again(now)
        self._cluster = replace(known, reconciled_at=self._now())
        self._store.save_cluster_status(self._cluster)

    def _look_again(self, now: datetime) -> ClusterStatus:
        self._cluster = known = self._ask_cluster(now)
        self._cluster_seen_at = time.monotonic()
        self._is_room_new = True
        self._steps.is_ray_reachable = known.is_ray_reachable
        return known

    def _ask_cluster(self, now: datetime) -> ClusterStatus:
        self._room = self._capacity = None
        try:
            capacity = self._capacity = self._launcher.capacity()
        except LauncherUnavailableError as error:
            if self._steps.is_ray_reachable:
                log.warning("ray_unavailable", error=str(error))
            return ClusterStatus(reconciled_at=now, is_ray_reachable=False, ray_error=str(error))
        if not self._steps.is_ray_reachable:
            log.info("ray_available")
        if capacity is None:
            return ClusterStatus(reconciled_at=now, is_ray_reachable=True)
        nodes = capacity.nodes
        if nodes is not None:
            self._room = grown(nodes, self._settings)
        return ClusterStatus(
            reconciled_at=now,
            is_ray_reachable=True,
            num_cpus=capacity.num_cpus,
            num_gpus=capacity.num_gpus,
            free_cpus=None if nodes is None else sum(node.free_cpus for node in nodes),
            free_gpus=None if nodes is None else sum(node.free_gpus for node in nodes),
            resources_at=None if nodes is None else now,
        )
