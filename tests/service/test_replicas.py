"""Two replicas over one database: one reconciles, and the other takes over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from queue_doubles import queue_of
from service_doubles import FakeLauncher, MemoryFolders, MemoryRuns, make_job
from sqlalchemy import Engine
from test_lease import run_out

from pipelines.specs.documents import Control
from service.dispatch import leadership
from service.dispatch.fencing import FencedJobFolders, FencedLauncher, FencedRuns
from service.dispatch.leadership import LeaseKeeper, SoleLeader
from service.dispatch.reconciler import Reconciler
from service.feeds.interfaces import LeaseLostError
from service.interfaces import AttemptState, AttemptStatus
from service.launches import attempt_launch
from service.ledger.lease import SqlLease
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.settings import Settings
from service.states import JobState

SECONDS = 1000.0


class Replica:
    """A reconciler of its own over a database and a Ray of all."""

    def __init__(self, engine: Engine, launcher: Any, settings: Settings, folders: MemoryFolders) -> None:
        lease = SqlLease(engine, SECONDS)
        self.store = SqlJobStore(engine, guard=lease.guard)
        self.keeper = LeaseKeeper(lease, SECONDS)
        parts: list[Any] = [self.store, launcher, folders, MemoryRuns()]
        self.reconciler = Reconciler(
            *parts, settings=settings, queue=SqlQueueStore(engine, guard=lease.guard), leadership=self.keeper
        )

    def round(self) -> bool:
        """As the loop makes it; whether it could."""
        self.keeper.hold()
        if not self.keeper.begin_round():
            return False
        self.reconciler.run_round()
        return True


class Freezing(FakeLauncher):
    """A Ray in whose answer something else can happen, as to a process that is stopped while it waits."""

    meanwhile: Callable[[], None] | None = None

    def status(self, submission_id: str) -> AttemptStatus | None:
        answer = super().status(submission_id)
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        return answer


@pytest.fixture
def ray() -> Freezing:
    return Freezing()


@pytest.fixture
def replicas(engine: Engine, ray: Freezing, settings: Settings) -> tuple[Replica, Replica]:
    folders = MemoryFolders()
    return Replica(engine, ray, settings, folders), Replica(engine, ray, settings, folders)


@pytest.fixture
def job_id(engine: Engine) -> str:
    job = make_job()
    SqlJobStore(engine).insert(job)
    return job.job_id


def test_only_one_of_two_makes_rounds(replicas: tuple[Replica, Replica]) -> None:
    assert [[replica.round() for replica in replicas] for _ in range(3)] == [[True, False]] * 3


def test_a_killed_replicas_jobs_go_on_under_the_other(
    replicas: tuple[Replica, Replica], engine: Engine, ray: Freezing, job_id: str
) -> None:
    first, second = replicas
    first.round()
    assert not second.round()
    run_out(engine)
    for _ in range(3):
        assert second.round()
    job = second.store.get(job_id)
    assert job is not None
    assert (job.state, job.attempt, ray.submitted) == (JobState.RUNNING, 1, [f"{job_id}-a1"])


def test_a_replica_that_stops_hands_over_at_once(replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    first.round()
    first.keeper.stop()
    assert second.round()


def test_a_replica_frozen_within_a_step_writes_nothing_when_it_wakes(
    replicas: tuple[Replica, Replica], engine: Engine, ray: Freezing, job_id: str
) -> None:
    """It saw the attempt run; meanwhile another takes over, and the attempt is lost and its next one begun."""
    first, second = replicas
    first.round()
    first.round()

    def freeze() -> None:
        run_out(engine)
        second.round()
        ray.set(f"{job_id}-a1", AttemptState.FAILED)
        second.round()

    ray.meanwhile = freeze
    with pytest.raises(LeaseLostError):
        first.round()
    job = second.store.get(job_id)
    assert job is not None
    assert (job.state, job.attempt) == (JobState.STARTING, 2)
    assert not first.round()


def test_a_replica_frozen_before_it_writes_a_file_withdraws_no_wish_of_its_successors(
    engine: Engine, ray: Freezing, settings: Settings
) -> None:
    """It was about to begin the second attempt; meanwhile another has begun it, and been told to cancel the job."""

    class FreezingFolders(MemoryFolders):
        meanwhile: Callable[[], None] | None = None

        def write_spec(self, job_id: str, spec_json: str) -> None:
            super().write_spec(job_id, spec_json)
            if self.meanwhile is not None:
                happens, self.meanwhile = self.meanwhile, None
                happens()

    folders = FreezingFolders()
    first, second = (Replica(engine, ray, settings, folders) for _ in range(2))
    store = SqlJobStore(engine)
    job = make_job(attempt=1)

    def freeze() -> None:
        run_out(engine)
        second.round()
        store.request_cancel(job.job_id, job.created_at)
        second.round()
        assert folders.controls[job.job_id].attempt == 2

    first.round()
    store.insert(job)
    folders.meanwhile = freeze
    with pytest.raises(LeaseLostError):
        first.round()
    assert folders.controls[job.job_id] == Control(action="cancel", then="end", attempt=2)


@pytest.mark.parametrize(
    ("outside", "act"),
    [
        (FencedLauncher, lambda ray: ray.submit(attempt_launch("/jobs/x", "x", 1))),
        (FencedLauncher, lambda ray: ray.stop("x-a1")),
        (FencedJobFolders, lambda folders: folders.write_spec("x", "{}")),
        (FencedJobFolders, lambda folders: folders.request_stop("x", "cancel", 1)),
        (FencedJobFolders, lambda folders: folders.withdraw_stop("x")),
        (FencedJobFolders, lambda folders: folders.write_origin("x", "y")),
        (FencedJobFolders, lambda folders: folders.save_log("x", 1, "")),
        (FencedRuns, lambda runs: runs.end("r", JobState.FAILED)),
    ],
)
def test_nothing_is_done_outside_the_database_without_the_lease(
    replicas: tuple[Replica, Replica], engine: Engine, outside: Any, act: Callable[[Any], None]
) -> None:
    first, second = replicas
    inner = {FencedLauncher: FakeLauncher, FencedJobFolders: MemoryFolders, FencedRuns: MemoryRuns}[outside]()
    before = str(vars(inner))
    first.round()
    run_out(engine)
    second.round()
    with pytest.raises(LeaseLostError):
        act(outside(inner, first.keeper.check))
    assert str(vars(inner)) == before
    act(outside(inner, second.keeper.check))
    assert str(vars(inner)) != before


def test_a_replica_is_at_fault_when_a_thread_of_its_own_has_ended(replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    assert first.reconciler.fault == "The thread of the reconciler has ended."
    first.reconciler.start()
    second.reconciler.start()
    try:
        assert (first.reconciler.fault, second.reconciler.fault) == (None, None)
    finally:
        first.reconciler.stop()
        second.reconciler.stop()
    assert first.reconciler.fault is not None


def test_a_replica_whose_loop_hangs_is_at_fault(engine: Engine) -> None:
    seconds = [0.0]
    keeper = LeaseKeeper(SqlLease(engine, SECONDS), SECONDS, clock=lambda: seconds[0])
    keeper.start(lambda: None)
    try:
        assert keeper.fault is None
        seconds[0] = leadership.STUCK_SECONDS + 1
        assert keeper.fault == "The reconciler of this replica has made no step for 301 seconds."
        keeper.beat()
        assert keeper.fault is None
    finally:
        keeper.stop()
    assert keeper.fault == "The thread that holds the lease has ended."


def test_the_lease_of_a_loop_that_hangs_is_let_go(
    engine: Engine, replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas
    first.round()
    monkeypatch.setattr(leadership, "STUCK_SECONDS", -1.0)
    run_out(engine)
    first.keeper.hold()
    assert second.round()


def test_what_another_replica_watches_is_not_counted_again(settings: Settings, engine: Engine, ray: Freezing) -> None:
    """Of three turns the second is another's; each comes 50 s after the one before."""
    job = make_job(state=JobState.RUNNING, attempt=1)
    store = SqlJobStore(engine)
    store.insert(job)
    ray.set(f"{job.job_id}-a1", AttemptState.RUNNING)
    turns, moments, is_over = iter([True, False, True]), [job.created_at], threading.Event()

    class Turns(SoleLeader):
        def begin_round(self) -> bool:
            moments.append(moments[-1] + timedelta(seconds=50))
            turn = next(turns, None)
            if turn is None:
                is_over.set()
            return bool(turn)

    parts: list[Any] = [store, ray, MemoryFolders(), MemoryRuns()]
    quick = settings.model_copy(update={"reconcile_interval_seconds": 0.01})
    reconciler = Reconciler(*parts, settings=quick, queue=queue_of(store), leadership=Turns(), now=lambda: moments[-1])
    reconciler.start()
    try:
        assert is_over.wait(120)
    finally:
        reconciler.stop()
    found = store.get(job.job_id)
    assert found is not None
    assert (found.state, found.running_seconds) == (JobState.RUNNING, 0)


def test_threads_of_two_replicas_share_the_work(replicas: tuple[Replica, Replica], engine: Engine, job_id: str) -> None:
    """As they run in the service: the second comes to life when the first has stopped."""
    import time

    first, second = replicas
    second.keeper._pause_seconds = 0.05
    first.reconciler.start()
    store = SqlJobStore(engine)

    def wait_for(state: JobState) -> None:
        deadline = time.monotonic() + 120
        while (job := store.get(job_id)) is None or job.state is not state:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    try:
        wait_for(JobState.RUNNING)
        second.reconciler.start()
        first.reconciler.stop()
        store.request_cancel(job_id, make_job().created_at)
        wait_for(JobState.CANCELLED)
    finally:
        first.reconciler.stop()
        second.reconciler.stop()
