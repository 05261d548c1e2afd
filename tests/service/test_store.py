"""One suite for both kinds of store, and what only a database has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from service_doubles import START, MemoryJobStore, make_job
from sqlalchemy import Engine, inspect

from pipelines.specs.documents import JobResult, Progress
from service.interfaces import DuplicateKeyError, IdempotencyKey, JobFilter, JobStore, StaleJobError
from service.ledger.database import make_engine, migrations_config, upgrade_database
from service.ledger.store import SqlJobStore
from service.ledger.tables import Base
from service.records import ClusterStatus, Job, JobFailure
from service.states import JobState


@pytest.fixture
def sql_store(engine: Engine) -> SqlJobStore:
    return SqlJobStore(engine)


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def any_store(request: pytest.FixtureRequest) -> Iterator[JobStore]:
    if request.param == "memory":
        yield MemoryJobStore()
        return
    engine = make_engine(
        request.getfixturevalue("settings").database_url
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_url")
    )
    upgrade_database(engine)
    yield SqlJobStore(engine)
    engine.dispose()


def filled(store: JobStore, number: int) -> list[Job]:
    """Jobs of the same moment two by two, so that the id has to decide between them."""
    jobs = [make_job(created_at=START + timedelta(seconds=index // 2)) for index in range(number)]
    jobs.sort(key=lambda job: (job.created_at, job.job_id))
    for job in jobs:
        store.insert(job)
    return jobs


def test_a_job_comes_back_as_it_was_put_in(any_store: JobStore) -> None:
    job = make_job(
        progress=Progress(heartbeat_at=START, losses={"a": 1.5}),
        result=JobResult(state="FAILED"),
        failure=JobFailure(code="lost", message="gone", attempt=1, details=("a", "b")),
        not_before_at=START,
    )
    any_store.insert(job)
    assert any_store.get(job.job_id) == job
    assert any_store.get("other") is None


def test_a_key_makes_one_job(any_store: JobStore) -> None:
    first, second = make_job(), make_job()
    any_store.insert(first, IdempotencyKey("k", "1"))
    with pytest.raises(DuplicateKeyError):
        any_store.insert(second, IdempotencyKey("k", "2"))
    assert any_store.get(second.job_id) is None
    assert any_store.find_by_key("k") == (IdempotencyKey("k", "1"), first)
    assert any_store.find_by_key("other") is None


def test_pages_join_to_the_whole_list(any_store: JobStore) -> None:
    jobs = filled(any_store, 9)
    seen: list[Job] = []
    while page := any_store.page(JobFilter(limit=2, before=(seen[-1].created_at, seen[-1].job_id) if seen else None)):
        seen += page
    assert seen == jobs[::-1]


def test_filters_hold_together(any_store: JobStore) -> None:
    jobs = filled(any_store, 4)
    other = make_job(name="other", created_at=START)
    any_store.insert(other)
    any_store.update(jobs[0], state=JobState.STARTING, attempt=1)
    assert [job.job_id for job in any_store.page(JobFilter(states=[JobState.STARTING]))] == [jobs[0].job_id]
    assert any_store.page(JobFilter(name="other", states=[JobState.QUEUED, JobState.FAILED])) == [other]
    assert any_store.page(JobFilter(kind="finetune")) == []


def test_an_update_of_a_job_that_moved_is_refused(any_store: JobStore) -> None:
    job = make_job()
    any_store.insert(job)
    started = any_store.update(job, state=JobState.STARTING, attempt=1)
    assert any_store.get(job.job_id) == started
    with pytest.raises(StaleJobError):
        any_store.update(job, state=JobState.CANCELLED)
    with pytest.raises(StaleJobError):
        any_store.update(make_job(), is_log_saved=True)


def test_an_update_leaves_the_wish_to_cancel_alone(any_store: JobStore) -> None:
    """The desk and the reconciler write at the same time."""
    job = make_job()
    any_store.insert(job)
    any_store.request_cancel(job.job_id, START)
    any_store.update(job, state=JobState.STARTING, attempt=1)
    after = any_store.get(job.job_id)
    assert after is not None
    assert (after.cancel_requested_at, after.state) == (START, JobState.STARTING)


def test_forbidden_moves_are_programming_errors(any_store: JobStore) -> None:
    job = make_job(state=JobState.SUCCEEDED)
    any_store.insert(job)
    with pytest.raises(AssertionError):
        any_store.update(job, state=JobState.RUNNING)


def test_cancel_is_noted_once_and_never_after_the_end(any_store: JobStore) -> None:
    job, over = make_job(), make_job(state=JobState.FAILED)
    any_store.insert(job)
    any_store.insert(over)
    any_store.request_cancel(job.job_id, START)
    again = any_store.request_cancel(job.job_id, START + timedelta(seconds=9))
    assert again is not None
    assert again.cancel_requested_at == START
    assert any_store.request_cancel(over.job_id, START) == over
    assert any_store.request_cancel("other", START) is None


def test_the_reconciler_sees_what_concerns_it(any_store: JobStore) -> None:
    queued, cancelled, running, over, settled = (
        make_job(created_at=START + timedelta(seconds=index), state=state, is_log_saved=index == 4)
        for index, state in enumerate(["QUEUED", "QUEUED", "RUNNING", "SUCCEEDED", "FAILED"])
    )
    for job in (queued, cancelled, running, over, settled):
        any_store.insert(Job(**{**job.__dict__, "state": JobState(job.state)}))
    any_store.request_cancel(cancelled.job_id, START)
    assert [job.job_id for job in any_store.list_unsettled()] == [cancelled.job_id, running.job_id, over.job_id]
    assert [job.job_id for job in any_store.list_queued(5)] == [queued.job_id]
    assert any_store.count_active() == 1


def test_cluster_status_is_replaced(any_store: JobStore) -> None:
    assert any_store.cluster_status() is None
    for cpus in (1.0, None):
        status = ClusterStatus(reconciled_at=START, is_ray_reachable=True, num_cpus=cpus)
        any_store.save_cluster_status(status)
        assert any_store.cluster_status() == status


def test_migrations_make_what_the_models_say(engine: Engine) -> None:
    upgrade_database(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrations_are_taken_back_without_a_trace(engine: Engine) -> None:
    with engine.begin() as connection:
        config = migrations_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert set(inspect(engine).get_table_names()) == {"alembic_version"}


def test_threads_write_side_by_side(sql_store: SqlJobStore) -> None:
    """One key, eight threads: one job, and no thread is told that the database is locked."""
    errors: list[Exception] = []

    def write() -> None:
        for _ in range(5):
            sql_store.insert(make_job())
        try:
            sql_store.insert(make_job(), IdempotencyKey("k", "1"))
        except DuplicateKeyError as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 7
    assert len(sql_store.page(JobFilter(limit=200))) == 41
