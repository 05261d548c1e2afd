"""What the plan keeps to, whatever the jobs, the cluster and the quotas are."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from queue_cases import NOW

from service.queueing.amounts import Amount, amount_of, sum_of
from service.queueing.demand import Demand
from service.queueing.plan import make_plan
from service.queueing.records import (
    Active,
    Cluster,
    Departed,
    Holding,
    NodeRoom,
    Plan,
    Quota,
    Quotas,
    Rules,
    Waiting,
)
from service.queueing.room import Room

NAMES = st.sampled_from(["ada", "ben", "eve"])
SMALL = settings(max_examples=200, deadline=None)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    workers, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    cpus = draw(st.sampled_from([0.5, 1.0, 2.0, 3.5]))
    gpus = draw(st.integers(0, 1))
    return Demand(num_workers=workers * groups, cpus_per_worker=cpus, gpus_per_worker=gpus, group_workers=workers)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = []
    for number in range(draw(st.integers(1, 3))):
        cpus, gpus = draw(st.integers(1, 16)), draw(st.integers(0, 4))
        held = draw(st.integers(0, cpus)), draw(st.integers(0, gpus))
        nodes.append(NodeRoom(cpus, gpus, cpus - held[0], gpus - held[1], f"n{number}"))
    return Cluster(tuple(nodes))


@st.composite
def queues(draw: st.DrawFn) -> list[Waiting]:
    jobs = []
    for number in range(draw(st.integers(0, 8))):
        came = NOW - timedelta(seconds=draw(st.integers(0, 2000)))
        jobs.append(
            Waiting(
                job_id=f"q{number}",
                owner=draw(NAMES),
                project=draw(NAMES),
                priority=draw(st.integers(-1, 2)),
                demand=draw(demands()),
                created_at=came,
                queued_at=came,
                is_backed_off=draw(st.integers(0, 9)) == 0,
            )
        )
    return jobs


@st.composite
def holdings(draw: st.DrawFn) -> tuple[Holding, ...]:
    nodes = draw(st.lists(st.sampled_from(["n0", "n1", "n2", "gone"]), unique=True, max_size=2))
    return tuple(Holding(name, draw(st.sampled_from([0.5, 2.0])), draw(st.integers(0, 1))) for name in nodes)


DEPARTED = st.lists(st.builds(Departed, st.just("gone"), holdings(), st.none() | demands()), max_size=2)


@st.composite
def actives(draw: st.DrawFn) -> list[Active]:
    return [
        Active(
            job_id=f"r{number}",
            owner=draw(NAMES),
            project=draw(NAMES),
            priority=draw(st.integers(-1, 2)),
            demand=draw(demands()),
            is_seen=draw(st.booleans()),
            is_leaving=draw(st.booleans()),
            held=draw(holdings()),
            is_preemptible=draw(st.booleans()),
            run_started_at=NOW - timedelta(seconds=draw(st.integers(0, 2000))),
        )
        for number in range(draw(st.integers(0, 5)))
    ]


QUOTAS = st.builds(
    Quota,
    st.none() | st.integers(0, 4),
    st.none() | st.floats(0, 20),
    st.none() | st.integers(0, 4),
)
ALL_QUOTAS = st.builds(
    Quotas, QUOTAS, QUOTAS, st.dictionaries(NAMES, QUOTAS, max_size=2), st.dictionaries(NAMES, QUOTAS, max_size=2)
)
RULES = st.builds(
    Rules,
    max_running_jobs=st.integers(1, 8),
    reservation=st.just(timedelta(seconds=600)),
    preempts=st.booleans(),
)
CASES = st.tuples(queues(), actives(), st.none() | clusters(), ALL_QUOTAS, RULES, DEPARTED)
Case = tuple[list[Waiting], list[Active], Cluster | None, Quotas, Rules, list[Departed]]


def plan_of(case: Case) -> Plan:
    queued, active, cluster, quotas, rules, departed = case
    return make_plan(queued, active, cluster, quotas, {}, rules, NOW, departed=departed)


def admitted(case: Case, plan: Plan) -> list[tuple[Waiting, Demand]]:
    """In their order, with what they get of the cluster as it is."""
    queued, active, cluster, *_ = case
    jobs = {job.job_id: job for job in queued}
    assert cluster is not None or not plan.admit
    found = []
    for job_id in plan.admit:
        assert cluster is not None
        demand = Room(cluster, active).fitted(jobs[job_id].demand)
        assert demand is not None
        found.append((jobs[job_id], demand))
    return found


@SMALL
@given(CASES)
def test_each_job_starts_or_has_one_reason(case: Case) -> None:
    plan = plan_of(case)
    said = [*plan.admit, *(wait.job_id for wait in plan.waits)]
    assert sorted(said) == sorted(job.job_id for job in case[0])
    assert [wait.position for wait in plan.waits] == list(range(1, len(plan.waits) + 1))
    assert all(wait.message for wait in plan.waits)


@SMALL
@given(CASES)
def test_no_quota_is_exceeded_by_what_is_admitted(case: Case) -> None:
    _, active, _, quotas, _, _ = case
    started = admitted(case, plan_of(case))
    for job, _ in started:
        for scope, name, quota in quotas.of(job.owner, job.project):
            held = [one.demand for one in active if getattr(one, scope) == name]
            held += [one.demand for one, _ in started if getattr(one, scope) == name]
            assert quota.max_running_jobs is None or len(held) <= quota.max_running_jobs
            assert quota.max_cpus is None or sum(one.num_cpus for one in held) <= quota.max_cpus + 1e-6
            if quota.max_gpus is not None and job.demand.num_gpus:
                assert sum(one.num_gpus for one in held) <= quota.max_gpus


@SMALL
@given(CASES)
def test_nothing_is_admitted_beyond_what_is_free_nor_beyond_the_places(case: Case) -> None:
    _, active, cluster, _, rules, _ = case
    plan = plan_of(case)
    started = [demand for _, demand in admitted(case, plan)]
    if not started:
        return
    assert cluster is not None
    assert len(active) + len(started) <= rules.max_running_jobs
    room = Room(cluster, active)
    unseen = sum_of(amount_of(room.held_by(job.job_id)) for job in active if not job.is_seen)
    free = Amount(sum(one.free_cpus for one in cluster.nodes), sum(one.free_gpus for one in cluster.nodes)) - unseen
    own = Amount(cluster.num_cpus, cluster.num_gpus) - sum_of(amount_of(room.held_by(job.job_id)) for job in active)
    taken = sum_of(map(amount_of, started))
    for left in (free, own):
        assert taken.cpus <= left.cpus + 1e-6
        assert not taken.gpus or taken.gpus <= left.gpus + 1e-6


@SMALL
@given(CASES)
def test_only_lower_priorities_that_may_be_paused_are_and_each_once(case: Case) -> None:
    queued, active, _, _, rules, _ = case
    plan = plan_of(case)
    waits, runs = {job.job_id: job for job in queued}, {job.job_id: job for job in active}
    for one in plan.preempt:
        assert runs[one.job_id].priority < waits[one.for_job_id].priority
        assert runs[one.job_id].is_preemptible
        assert not runs[one.job_id].is_leaving
        assert one.for_job_id not in plan.admit
    assert len({one.job_id for one in plan.preempt}) == len(plan.preempt)
    assert not plan.preempt or rules.preempts


@SMALL
@given(CASES)
def test_room_that_is_kept_for_nobody_does_not_stand_idle(case: Case) -> None:
    """Where a job says the cluster is busy, what it wants was not there when its turn came: nor is it now."""
    queued, active, cluster, _, _, _ = case
    plan = plan_of(case)
    if cluster is None:
        return
    room = Room(cluster, active)
    for _, demand in admitted(case, plan):
        room.take(demand)
    kept = any(wait.reason == "behind" for wait in plan.waits)
    demand_of = {job.job_id: job.demand for job in queued}
    for wait in plan.waits:
        fitted = room.fitted(demand_of[wait.job_id])
        if wait.reason == "cluster_busy":
            assert fitted is not None
            assert not room.fits(fitted)
        if wait.reason == "behind":
            assert kept
            assert any(other.reason == "cluster_busy" and other.position < wait.position for other in plan.waits)


@SMALL
@given(CASES, st.randoms())
def test_the_order_of_the_rows_is_no_matter(case: Case, random: object) -> None:
    queued, active, cluster, quotas, rules, departed = case
    shuffled = list(queued)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = make_plan(shuffled, active, cluster, quotas, {}, rules, NOW, departed=departed)
    assert again == plan_of(case)
