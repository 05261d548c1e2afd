"""One suite for both kinds of store, and what only a database has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from service_doubles import START, MemoryJobStore, make_job
from sqlalchemy import Engine, Select, inspect, text

from pipelines.specs.documents import JobResult, Progress
from service.interfaces import DuplicateKeyError, IdempotencyKey, JobFilter, JobStore, StaleJobError
from service.ledger import database
from service.ledger.database import make_engine, migrations_config, upgrade_database
from service.ledger.queries import page_query, queued_query, unsettled_query
from service.ledger.store import SqlJobStore
from service.ledger.tables import Base
from service.records import ClusterStatus, Job, JobFailure
from service.settings import Settings
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


def test_an_older_database_is_brought_up_and_down_and_loses_no_job(settings: Settings) -> None:
    engine = make_engine(settings.database_url)
    config = migrations_config()
    columns = "job_id, name, kind, spec_json, spec_sha256, created_at, state, attempt, is_log_saved"
    values = "'pt-1', 'n', 'pretrain', '{}', 'x', '2026-01-01 00:00:00', 'RUNNING', 3, false"
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(text(f"INSERT INTO jobs ({columns}) VALUES ({values})"))
        connection.execute(text("INSERT INTO idempotency_keys VALUES ('k', 'x', 'pt-1')"))
    upgrade_database(engine)
    store = SqlJobStore(engine)
    job = store.get("pt-1")
    assert job is not None
    assert (job.num_failures, job.priority, job.labels, job.notes, job.is_archived) == (2, 0, {}, "", False)
    assert store.find_by_key("k") is not None
    paused = make_job(state=JobState.PAUSED)
    store.insert(paused)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        states = {row[0]: row[1] for row in connection.execute(text("SELECT job_id, state FROM jobs"))}
        keys = connection.execute(text("SELECT key FROM idempotency_keys")).scalars().all()
    assert (states, keys) == ({"pt-1": "RUNNING", paused.job_id: "CANCELLED"}, ["k"])
    engine.dispose()


LISTS = {
    "all": JobFilter(is_archived=None),
    "not_archived": JobFilter(),
    "archived": JobFilter(is_archived=True),
    "next_page": JobFilter(before=(START, "pt-1")),
    "of_a_state": JobFilter(states=[JobState.FAILED]),
    "of_a_label": JobFilter(labels={"a": "1"}),
    "of_two_labels": JobFilter(labels={"a": "1", "b": "2"}, before=(START, "pt-1")),
    "of_a_project": JobFilter(projects=frozenset({"law"}), before=(START, "pt-1")),
    "of_a_project_archived": JobFilter(projects=frozenset({"law"}), is_archived=True),
    "of_a_project_and_a_state": JobFilter(projects=frozenset({"law"}), states=[JobState.FAILED]),
    "of_an_owner": JobFilter(owner="ada"),
    "of_an_owner_in_projects": JobFilter(owner="ada", projects=frozenset({"law", "clinical"})),
    "of_a_label_in_projects": JobFilter(labels={"a": "1"}, projects=frozenset({"law", "clinical"})),
}


@pytest.mark.parametrize("query", [*map(page_query, LISTS.values())], ids=LISTS)
def test_a_page_is_one_run_of_an_index_without_sorting(store: SqlJobStore, query: Select[Any]) -> None:
    plan = plan_of(store, query)
    assert not any("TEMP B-TREE" in step or step.startswith("SCAN jobs USING") for step in plan[1:]), plan
    assert all("USING" in step for step in plan if "SEARCH" in step or "SCAN" in step), plan


def test_a_page_of_several_projects_reads_the_newest_of_each(store: SqlJobStore) -> None:
    """What is sorted at the end are the few of their pages, by their primary key."""
    plan = plan_of(store, page_query(JobFilter(projects=frozenset({"law", "clinical"}), limit=7)))
    runs = [step for step in plan if "ix_jobs_project_is_archived_created_at_job_id" in step]
    assert len(runs) == 2, plan
    assert all("project=? AND is_archived=?" in step for step in runs)
    assert not any(step.startswith("SCAN jobs") for step in plan), plan


def test_pages_are_of_the_projects_and_the_owner_that_are_asked_for(any_store: JobStore) -> None:
    for number in range(9):
        project, owner = ("law", "clinical", "default")[number % 3], ("ada", "ben")[number % 2]
        any_store.insert(
            make_job(job_id=f"pt-{number}", created_at=START + timedelta(seconds=number), project=project, owner=owner)
        )

    def found(*projects: str, **changes: Any) -> list[str]:
        wanted = JobFilter(projects=frozenset(projects) if projects else None, **changes)
        return [job.job_id.removeprefix("pt-") for job in any_store.page(wanted)]

    assert found("law", "clinical") == ["7", "6", "4", "3", "1", "0"]
    assert found("law", "clinical", limit=2) == ["7", "6"]
    assert found("law", "clinical", before=(START + timedelta(seconds=6), "pt-6")) == ["4", "3", "1", "0"]
    assert found("law") == ["6", "3", "0"]
    assert found("law", "clinical", owner="ben") == ["7", "3", "1"]
    assert found(owner="ada", limit=2) == ["8", "6"]
    assert any_store.page(JobFilter(projects=frozenset())) == []


def test_the_queue_is_one_run_of_an_index(store: SqlJobStore) -> None:
    plan = plan_of(store, queued_query().limit(5))
    assert plan == ["SEARCH jobs USING INDEX ix_jobs_state_queue_rank_created_at_job_id (state=?)"]


def test_the_reconciler_looks_at_no_job_that_is_settled(store: SqlJobStore) -> None:
    """Nor at those that only wait: each part of the question has an index."""
    plan = plan_of(store, unsettled_query())
    searches = [step for step in plan if step.startswith("SEARCH")]
    assert not any(step.startswith("SCAN") for step in plan), plan
    assert len(searches) == 5
    assert any("state=? AND is_log_saved=?" in step for step in searches), plan
    assert sum("AND cancel_requested_at" in step or "AND pause_requested_at" in step for step in searches) == 3, plan


def plan_of(store: SqlJobStore, query: Select[Any]) -> list[str]:
    """What SQLite would do."""
    engine = store._engine
    compiled = query.compile(engine, compile_kwargs={"render_postcompile": True})
    with engine.connect() as connection:
        names = [compiled.params[name] for name in compiled.positiontup or ()]
        processed = [str(value) if isinstance(value, datetime) else value for value in names]
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", tuple(processed))
        return [str(row[3]) for row in rows]


def test_labels_follow_an_edit(any_store: JobStore) -> None:
    job, other = make_job(labels={"a": "1", "b": "2"}), make_job(labels={"a": "1"})
    any_store.insert(job)
    any_store.insert(other)

    def found(**labels: str) -> set[str]:
        return {one.job_id for one in any_store.page(JobFilter(labels=labels))}

    assert (found(a="1"), found(a="1", b="2"), found(a="2")) == ({job.job_id, other.job_id}, {job.job_id}, set())
    edited = any_store.edit(job.job_id, labels={"a": "2"}, priority=3)
    assert edited is not None
    assert (dict(edited.labels), edited.priority) == ({"a": "2"}, 3)
    assert (found(a="1"), found(b="2"), found(a="2")) == ({other.job_id}, set(), {job.job_id})
    assert any_store.edit("other", notes="x") is None


def test_the_queue_goes_by_priority_and_then_by_age(any_store: JobStore) -> None:
    jobs = [make_job(created_at=START + timedelta(seconds=k), priority=p) for k, p in enumerate((0, -1, 5, 0))]
    for job in jobs:
        any_store.insert(job)
    assert any_store.list_queued(3) == [jobs[2], jobs[0], jobs[3]]
    any_store.request_pause(jobs[2].job_id, START)
    assert [job.job_id for job in any_store.list_queued(1)] == [jobs[0].job_id]


def test_wishes_outrank_one_another(any_store: JobStore) -> None:
    job = make_job()
    any_store.insert(job)
    paused = any_store.request_pause(job.job_id, START)
    killed = any_store.request_kill(job.job_id, START + timedelta(seconds=1))
    assert paused is not None
    assert killed is not None
    assert (paused.pause_requested_at, killed.cancel_requested_at) == (START, killed.kill_requested_at)
    any_store.withdraw_pause(job.job_id)
    late = any_store.request_pause(job.job_id, START)
    assert late is not None
    assert late.pause_requested_at is None


def test_only_what_is_over_is_archived(any_store: JobStore) -> None:
    job, over = make_job(), make_job(state=JobState.FAILED)
    for one in (job, over):
        any_store.insert(one)
        any_store.set_archived(one.job_id, True)
    assert any_store.page(JobFilter()) == [job]
    assert [one.job_id for one in any_store.page(JobFilter(is_archived=True))] == [over.job_id]
    assert len(any_store.page(JobFilter(is_archived=None))) == 2


def test_processes_migrate_side_by_side(database_url: str) -> None:
    """Each finds nothing, or all of it."""
    errors: list[Exception] = []

    def migrate() -> None:
        engine = make_engine(database_url)
        try:
            upgrade_database(engine)
        except Exception as error:
            errors.append(error)
        engine.dispose()

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


def test_a_migration_waits_for_another_as_long_as_it_takes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL's waits on a lock without a limit."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_SECONDS", 1)
    first, second = make_engine(settings.database_url), make_engine(settings.database_url)
    with first.connect() as held:
        held.exec_driver_sql("BEGIN IMMEDIATE")
        waiting = threading.Thread(target=upgrade_database, args=(second,))
        waiting.start()
        waiting.join(3)
        assert waiting.is_alive()
        held.exec_driver_sql("COMMIT")
    waiting.join(60)
    with second.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 1000
        assert connection.exec_driver_sql("SELECT count(*) FROM jobs").scalar() == 0
    first.dispose()
    second.dispose()


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
