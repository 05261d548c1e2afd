"""The load benchmark: what it compares is the same, and what it should notice it notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import func, select

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def filled(monkeypatch):
    """Engine and URL of a PostgreSQL with a hundred jobs and a thousand events."""
    pytest.importorskip("pgserver")
    pytest.importorskip("psycopg")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from load_rows import fill
    from own_postgres import OwnPostgres

    from service.ledger.database import make_engine, upgrade_database

    with OwnPostgres() as server:
        engine = make_engine(server.url)
        upgrade_database(engine)
        fill(engine, 100, 1000)
        yield engine, server.url
        engine.dispose()


def test_the_service_and_the_bare_application_show_the_same_jobs(filled, monkeypatch):
    import contenders.bare_api as bare

    from service.interfaces import JobFilter
    from service.ledger.events import SqlEventStore
    from service.ledger.store import SqlJobStore
    from service.states import JobState

    engine, _ = filled
    monkeypatch.setattr(bare, "_engine", engine)
    store = SqlJobStore(engine)
    assert len(store.page(JobFilter(limit=200))) == 101
    for states, state in ((), None), ((JobState.FAILED,), "FAILED"):
        ours = [job.job_id for job in store.page(JobFilter(states=states, limit=30))]
        page = bare.list_jobs(limit=30, state=state)
        assert [job.job_id for job in page.items] == ours
    first = bare.list_jobs(limit=30)
    following = bare.list_jobs(limit=30, cursor=first.next_cursor)
    assert [job.job_id for job in following.items] == [j.job_id for j in store.page(JobFilter(limit=60))][30:]
    job = store.get(first.items[-1].job_id)
    shown = bare.get_job(job.job_id)
    assert shown.progress["step"] == job.progress.step
    assert shown.spec["kind"] == "pretrain"
    page = SqlEventStore(engine).read_events(1000, 10)
    assert page.last_seq == 1000 + 4  # and those of the jobs that the store wrote
    assert [event.seq for event in page.events] == [1001, 1002, 1003, 1004]


def test_a_job_submitted_to_the_bare_application_is_a_row(filled, monkeypatch):
    import contenders.bare_api as bare

    engine, _ = filled
    monkeypatch.setattr(bare, "_engine", engine)
    made = bare.create_job(bare.NewJob(spec={"name": "x", "kind": "pretrain"}))
    assert bare.get_job(made.job_id).spec["name"] == "x"
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(bare.TABLE)) == 102


@pytest.mark.parametrize("numbers", [[0, 1], [0, 1, 1, 2], [1, 0, 2], [0, 2]])
def test_a_follower_that_misses_something_ends_the_run(monkeypatch, numbers):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from load import check_nothing_is_lost
    from load_clients import Follower

    check_nothing_is_lost([Follower([0, 1, 2])], 3)
    with pytest.raises(AssertionError, match="a follower got"):
        check_nothing_is_lost([Follower([0, 1, 2]), Follower(numbers)], 3)


def test_writers_number_what_followers_read(filled, monkeypatch, tmp_path):
    """Events in the database and lines in a log are counted from 0, as the numbers that are read back."""
    import json

    import load_writers
    from load_rows import FOLLOWED_ID

    from service.joblogs.kept import LogWish
    from service.joblogs.parts import LogParts
    from service.ledger.events import SqlEventStore
    from service.settings import Settings

    engine, url = filled
    assert len(load_writers.events(url, 3, 100.0, tmp_path)) == 3
    told = SqlEventStore(engine).read_events(1004, 10).events
    lines = [f"data: {json.dumps({'payload': dict(event.payload)})}" for event in told]
    assert [load_writers.step_of(line) for line in lines] == [0, 1, 2]

    assert len(load_writers.log_lines(tmp_path / "storage", 45, 1000.0, tmp_path)) == 45
    parts = LogParts(Settings(home=tmp_path, storage_uri=str(tmp_path / "storage")))
    found = parts.sources(FOLLOWED_ID, 1)["train-0"]
    assert LogWish(sources=("train-0",)).takes(found.name)
    text = b"".join(parts.read(part) for part in found.parts).decode()
    assert [load_writers.line_number(line) for line in text.splitlines()] == list(range(45))
