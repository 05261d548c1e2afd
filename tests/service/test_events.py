"""Events: what is written with each row, in which order, and how long it is kept. On both databases."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from service_doubles import START, make_job
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

from pipelines.specs.documents import JobResult, Progress
from service.feeds.records import EventType
from service.feeds.telling import MAX_FIGURES, ProgressGate, told_of_update
from service.interfaces import DuplicateKeyError, IdempotencyKey, StaleJobError
from service.ledger.events import SqlEventStore
from service.ledger.feed_tables import EventCounterRow
from service.ledger.store import SqlJobStore
from service.records import JobFailure
from service.states import JobState

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture
def jobs(engine: Engine) -> SqlJobStore:
    return SqlJobStore(engine)


@pytest.fixture
def events(engine: Engine) -> SqlEventStore:
    return SqlEventStore(engine)


def told(events: SqlEventStore, job_id: str | None = None) -> list[tuple[int, str, Any]]:
    return [(one.seq, one.type.value, one.payload) for one in events.read_events(0, 1000, job_id).events]


def test_a_jobs_life_is_told_in_order(jobs: SqlJobStore, events: SqlEventStore) -> None:
    job = make_job()
    jobs.insert(job)
    job = jobs.update(job, state=JobState.STARTING, attempt=1)
    job = jobs.update(job, state=JobState.RUNNING, started_at=START)
    job = jobs.update(job, progress=Progress(heartbeat_at=START, step=3, losses={"total_loss": 1.5}))
    jobs.request_cancel(job.job_id, START)
    jobs.request_cancel(job.job_id, START)
    jobs.update(job, state=JobState.CANCELLED, failure=JobFailure(code="lost", message="gone", attempt=1))
    seen = told(events)
    assert [seq for seq, _, _ in seen] == list(range(1, 8))
    assert [kind for _, kind, _ in seen] == ["created", "state", "state", "progress", "metrics", "wish", "state"]
    assert seen[1][2] == {"state": "STARTING", "before": "QUEUED", "attempt": 1}
    assert (seen[3][2]["step"], seen[4][2]["losses"], seen[5][2]) == (3, {"total_loss": 1.5}, {"wish": "cancel"})
    assert seen[6][2]["failure"] == {"code": "lost", "reason": "lost", "message": "gone", "attempt": 1}


def test_wishes_are_told_once_each(jobs: SqlJobStore, events: SqlEventStore) -> None:
    job = make_job()
    jobs.insert(job)
    for _ in range(2):
        jobs.request_pause(job.job_id, START)
    for _ in range(2):
        jobs.withdraw_pause(job.job_id)
    for _ in range(2):
        jobs.request_kill(job.job_id, START)
    jobs.request_pause(job.job_id, START)
    jobs.edit(job.job_id, priority=3)
    wishes = [payload["wish"] for _, kind, payload in told(events) if kind == "wish"]
    assert (wishes, len(told(events))) == (["pause", "resume", "kill"], 4)


def test_a_pause_is_told_state_by_state(jobs: SqlJobStore, events: SqlEventStore) -> None:
    job = make_job(state=JobState.RUNNING, attempt=1)
    jobs.insert(job)
    for state in (JobState.PAUSING, JobState.PAUSED, JobState.QUEUED):
        job = jobs.update(job, state=state)
    states = [(payload["before"], payload["state"]) for _, kind, payload in told(events) if kind == "state"]
    assert states == [("RUNNING", "PAUSING"), ("PAUSING", "PAUSED"), ("PAUSED", "QUEUED")]


def test_what_was_not_written_is_not_told(jobs: SqlJobStore, events: SqlEventStore) -> None:
    job = make_job()
    jobs.insert(job, IdempotencyKey("k", "1"))
    with pytest.raises(DuplicateKeyError):
        jobs.insert(make_job(), IdempotencyKey("k", "1"))
    with pytest.raises(StaleJobError):
        jobs.update(make_job(), state=JobState.STARTING, attempt=1)
    jobs.request_cancel("other", START)
    assert len(told(events)) == 1


def test_events_of_one_job_leave_out_the_others(jobs: SqlJobStore, events: SqlEventStore) -> None:
    first, second = make_job(), make_job()
    for job in (first, second):
        jobs.insert(job)
    jobs.update(first, state=JobState.STARTING, attempt=1)
    assert [(seq, kind) for seq, kind, _ in told(events, first.job_id)] == [(1, "created"), (3, "state")]
    assert events.read_events(3, 10).events == ()
    assert events.read_events(1, 1).events[0].job_id == second.job_id


def test_a_reader_beside_many_writers_misses_nothing(jobs: SqlJobStore, events: SqlEventStore) -> None:
    """It asks for numbers beyond the last it saw, so a smaller one must never be committed later."""
    threads = [threading.Thread(target=lambda: [jobs.insert(make_job()) for _ in range(8)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    while len(seen) < 32:
        was_writing = any(thread.is_alive() for thread in threads)
        page = events.read_events(seen[-1] if seen else 0, 7)
        seen += [one.seq for one in page.events]
        if not was_writing and not page.events:
            break
    for thread in threads:
        thread.join()
    assert seen == list(range(1, 33))


def test_a_number_is_given_out_only_after_the_one_before_is_committed(engine: Engine, jobs: SqlJobStore) -> None:
    """Two transactions that write events wait for each other."""
    order: list[str] = []

    def write() -> None:
        jobs.insert(make_job())
        order.append("second")

    thread = threading.Thread(target=write)
    with Session(engine) as session, session.begin():
        session.execute(update(EventCounterRow).values(last_seq=EventCounterRow.last_seq))
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]


def test_pruning_keeps_the_newest_and_numbers_go_on(jobs: SqlJobStore, events: SqlEventStore) -> None:
    for _ in range(10):
        jobs.insert(make_job())
    assert events.prune_events(LONG_AGO, keep=100, limit=5) == 0
    assert events.prune_events(LONG_AGO, keep=4, limit=5) == 5
    assert events.prune_events(LONG_AGO, keep=4, limit=5) == 1
    page = events.read_events(0, 100)
    assert ([one.seq for one in page.events], page.pruned_seq, page.last_seq) == ([7, 8, 9, 10], 6, 10)
    assert events.prune_events(datetime.now(UTC) + timedelta(seconds=1), keep=100, limit=100) == 4
    jobs.insert(make_job())
    assert [one.seq for one in events.read_events(0, 100).events] == [11]


def test_a_moment_comes_back_as_it_was(jobs: SqlJobStore, events: SqlEventStore) -> None:
    before = datetime.now(UTC)
    jobs.insert(make_job())
    assert before <= events.read_events(0, 1).events[0].at <= datetime.now(UTC)


def test_progress_is_told_now_and_then_and_a_new_stage_at_once() -> None:
    now = [0.0]
    gate = ProgressGate(5.0, lambda: now[0])
    job = make_job(state=JobState.RUNNING, attempt=1, progress=Progress(heartbeat_at=START, stage="train"))

    def tells(stage: str) -> bool:
        return bool(told_of_update(job, {"progress": Progress(heartbeat_at=START, stage=stage)}, gate))

    assert [tells("train"), tells("train"), tells("evaluate")] == [True, False, True]
    now[0] += 5.0
    assert tells("train")


def test_what_was_held_back_is_told_before_the_job_moves_on() -> None:
    gate = ProgressGate(5.0, lambda: 0.0)
    job = make_job(state=JobState.RUNNING, attempt=1, progress=Progress(heartbeat_at=START, stage="train"))
    for step in (1, 2):
        progress = Progress(heartbeat_at=START, stage="train", step=step)
        told_of_update(job, {"progress": progress}, gate)
    job = replace(job, progress=progress)
    told = told_of_update(job, {"state": JobState.PAUSED}, gate)
    assert [one.payload.get("step", one.payload.get("state")) for one in told] == [2, "PAUSED"]
    assert len(told_of_update(job, {"state": JobState.PAUSED}, gate)) == 1  # and only once


def test_a_last_word_that_comes_with_the_end_is_told_with_it() -> None:
    gate = ProgressGate(5.0, lambda: 0.0)
    job = make_job(state=JobState.RUNNING, attempt=1, progress=Progress(heartbeat_at=START, stage="train"))
    last = Progress(heartbeat_at=START, stage="train", step=9)
    gate.passes(job.job_id)
    told = told_of_update(job, {"progress": last, "state": JobState.SUCCEEDED}, gate)
    assert [one.payload.get("step", one.payload.get("state")) for one in told] == [9, "SUCCEEDED"]


@effort(deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.floats(), max_size=2 * MAX_FIGURES))
def test_any_figures_make_an_event_of_bounded_size_that_is_json(figures: dict[str, float]) -> None:
    import json

    progress = Progress.model_construct(losses=figures, message="x" * 9999, evaluation={}, heartbeat_at=START)
    one = told_of_update(make_job(), {"progress": progress}, ProgressGate(0.0))
    assert all(len(json.dumps(event.payload, allow_nan=False)) < 20_000 for event in one)


def test_the_last_word_on_a_job_is_its_state() -> None:
    changes = {"state": JobState.SUCCEEDED, "result": JobResult(state="SUCCEEDED", evaluation={"auc": 0.9})}
    kinds = [one.type for one in told_of_update(make_job(state=JobState.RUNNING), changes, ProgressGate(0.0))]
    assert kinds == [EventType.METRICS, EventType.STATE]
