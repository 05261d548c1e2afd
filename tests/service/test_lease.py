"""One reconciler at a time, on both databases: frozen holders, killed holders, replicas with wrong clocks."""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from service_doubles import make_job
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

from service.feeds.interfaces import LeaseLostError
from service.ledger.feed_tables import LeaseRow
from service.ledger.lease import RECONCILER_LEASE, SqlLease, database_seconds
from service.ledger.store import SqlJobStore
from service.records import ClusterStatus
from service.states import JobState

LONG = 1000.0


def run_out(engine: Engine) -> None:
    """Time passes, by the database's clock."""
    with Session(engine) as session, session.begin():
        session.execute(update(LeaseRow).where(LeaseRow.name == RECONCILER_LEASE).values(expires_at=0.0))


def row(engine: Engine) -> LeaseRow:
    with Session(engine) as session:
        return session.get_one(LeaseRow, RECONCILER_LEASE)


def acting(engine: Engine, lease: SqlLease) -> SqlJobStore:
    return SqlJobStore(engine, guard=lease.guard)


def test_one_of_two_holds_it(engine: Engine) -> None:
    first, second = SqlLease(engine, LONG), SqlLease(engine, LONG)
    assert (first.try_hold(), second.try_hold(), first.try_hold()) == (True, False, True)
    assert (first.pin(), second.pin()) == (True, False)


def test_a_released_lease_is_free_at_once(engine: Engine) -> None:
    first, second = SqlLease(engine, LONG), SqlLease(engine, LONG)
    first.try_hold()
    first.release()
    assert not first.is_held
    assert second.try_hold()


def test_a_killed_holder_is_succeeded_when_its_lease_has_run_out(engine: Engine) -> None:
    SqlLease(engine, LONG).try_hold()
    second = SqlLease(engine, LONG)
    assert not second.try_hold()
    run_out(engine)
    assert second.try_hold()


def test_a_lease_that_ran_out_untaken_is_still_its_holders(engine: Engine) -> None:
    lease = SqlLease(engine, LONG)
    lease.try_hold()
    lease.pin()
    run_out(engine)
    assert lease.try_hold()
    assert lease.is_held


def test_a_frozen_holder_writes_nothing_after_another_took_over(engine: Engine) -> None:
    """Nor does it after it has the lease again, in the round that it began before."""
    frozen, successor = SqlLease(engine, LONG), SqlLease(engine, LONG)
    store = acting(engine, frozen)
    job = make_job()
    SqlJobStore(engine).insert(job)
    frozen.try_hold()
    frozen.pin()
    run_out(engine)
    successor.try_hold()
    status = ClusterStatus(reconciled_at=job.created_at, is_ray_reachable=True)
    for write in (
        lambda: store.update(job, state=JobState.STARTING, attempt=1),
        lambda: store.save_cluster_status(status),
        lambda: store.insert(make_job()),
        lambda: store.request_cancel(job.job_id, job.created_at),
        lambda: store.request_kill(job.job_id, job.created_at),
        lambda: store.request_pause(job.job_id, job.created_at),
        lambda: store.withdraw_pause(job.job_id),
        lambda: store.edit(job.job_id, priority=1, labels={"team": "nlp"}),
        lambda: store.set_archived(job.job_id, True),
    ):
        with pytest.raises(LeaseLostError):
            write()
    successor.release()
    assert frozen.try_hold()
    with pytest.raises(LeaseLostError):
        store.update(job, state=JobState.STARTING, attempt=1)
    assert not frozen.is_held
    assert (store.get(job.job_id), store.cluster_status()) == (job, None)
    frozen.pin()
    assert store.update(job, state=JobState.STARTING, attempt=1).attempt == 1


def test_a_takeover_waits_for_a_write_that_has_begun(engine: Engine) -> None:
    """So that nothing of an earlier holder's is committed after it."""
    first, second = SqlLease(engine, LONG), SqlLease(engine, LONG)
    first.try_hold()
    first.pin()
    run_out(engine)
    order: list[str] = []

    def take_over() -> None:
        assert second.try_hold()
        order.append("taken over")

    thread = threading.Thread(target=take_over)
    with Session(engine) as session, session.begin():
        first.guard(session)
        thread.start()
        thread.join(0.3)
        order.append("written")
    thread.join(20)
    assert order == ["written", "taken over"]


def test_a_holder_stops_well_before_its_lease_runs_out(engine: Engine) -> None:
    now = [100.0]
    lease = SqlLease(engine, 30.0, clock=lambda: now[0])
    lease.try_hold()
    assert lease.pin()
    now[0] += 19.0
    assert lease.is_held
    now[0] += 1.5
    assert not lease.is_held


@pytest.mark.parametrize("skew", [-1e9, 1e9])
def test_a_replicas_own_clock_decides_nothing(engine: Engine, skew: float) -> None:
    holder = SqlLease(engine, LONG)
    holder.try_hold()
    skewed = SqlLease(engine, LONG, clock=lambda: skew)
    assert not skewed.try_hold()
    assert row(engine).holder == holder.holder


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["hold", "pin", "write", "release", "expire"])), max_size=30
)


@effort(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_writes_are_those_of_ever_newer_holders(engine: Engine, steps: list[tuple[int, str]]) -> None:
    """Whatever three replicas do in whatever order: the token under which a write succeeds never grows smaller, and is
    the newest one there is.
    """
    run_out(engine)
    leases = [SqlLease(engine, LONG) for _ in range(3)]
    stores = [acting(engine, lease) for lease in leases]
    for replica, step in steps:
        lease = leases[replica]
        if step == "hold":
            lease.try_hold()
        elif step == "pin":
            lease.pin()
        elif step == "release":
            lease.release()
        elif step == "expire":
            run_out(engine)
        else:
            newest = row(engine).token
            try:
                stores[replica].insert(make_job())
            except LeaseLostError:
                assert lease._pinned != newest
            else:
                assert lease._pinned == newest
    assert sum(lease.pin() for lease in leases) <= 1 or any(step == "expire" for _, step in steps)


def expires_in(engine: Engine, seconds: float) -> None:
    """As a holder leaves it that dies, by a clock that was set since."""
    with Session(engine) as session, session.begin():
        statement = update(LeaseRow).where(LeaseRow.name == RECONCILER_LEASE)
        session.execute(statement.values(expires_at=database_seconds(engine) + seconds))


def test_a_clock_that_was_set_back_keeps_no_lease_from_its_successor(engine: Engine) -> None:
    first, second = SqlLease(engine, LONG), SqlLease(engine, LONG)
    first.try_hold()
    first.pin()
    expires_in(engine, 3 * LONG)
    assert not second.try_hold()  # of a replica that is set to a longer one
    expires_in(engine, 86400.0 * 365)
    assert second.try_hold()
    with pytest.raises(LeaseLostError), Session(engine) as session, session.begin():
        first.guard(session)  # had it lived, it could write nothing any more
