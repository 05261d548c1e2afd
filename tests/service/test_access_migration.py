"""Keys, projects and the audit log come to a database with jobs in it and leave it again. On both databases."""

from __future__ import annotations

from pathlib import Path

import pytest
from access_world import ROOT, keys_settings
from alembic import command
from service_doubles import make_job
from sqlalchemy import Engine, inspect, text

from service.access.access import Access
from service.access.principals import ALL_SCOPES, Role
from service.interfaces import IdempotencyKey
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import migrations_config, upgrade_database
from service.ledger.events import SqlEventStore
from service.ledger.store import SqlJobStore


def downgrade(engine: Engine, revision: str) -> None:
    config = migrations_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)


def test_what_is_full_goes_down_and_up_and_loses_no_job(engine: Engine, tmp_path: Path) -> None:
    access = Access(keys_settings(tmp_path), SqlAccessStore(engine))
    access.create_project(ROOT, "law")
    access.create_key(
        ROOT, name="t", owner="eve", project="law", role=Role.ADMIN, scopes=ALL_SCOPES, lifetime_days=None
    )
    store, events = SqlJobStore(engine), SqlEventStore(engine)
    job = make_job(project="law", owner="eve")
    store.insert(job, IdempotencyKey("of:0", "x"), ROOT.entry("job.create", job.job_id, "law"))
    downgrade(engine, "0003")
    assert {"api_keys", "audit_log", "projects"} & set(inspect(engine).get_table_names()) == set()
    upgrade_database(engine)
    found = store.get(job.job_id)
    assert found is not None
    assert (found.project, found.owner, store.find_by_key("of:0") is not None) == ("default", "local", True)
    assert [event.project for event in events.read_events(0, 10).events] == ["default"]
    assert [project.name for project in access.store.list_projects()] == ["default"]


@pytest.mark.parametrize("projects", [None, frozenset({"law"}), frozenset({"default"}), frozenset({"default", "law"})])
def test_what_an_older_replica_tells_is_of_the_jobs_project(engine: Engine, projects: frozenset[str] | None) -> None:
    """While replicas are exchanged one after the other, one of the version before may tell of jobs of ours."""
    job = make_job(project="law")
    SqlJobStore(engine).insert(job)
    with engine.begin() as connection:
        connection.execute(text("UPDATE event_counter SET last_seq = last_seq + 1"))
        columns, at = "seq, at, job_id, type, payload", "'2026-01-01 00:00:00'"
        values = f"(SELECT last_seq FROM event_counter), {at}, '{job.job_id}', 'state', '{{}}'"
        connection.execute(text(f"INSERT INTO events ({columns}) VALUES ({values})"))
    found = SqlEventStore(engine).read_events(0, 10, projects=projects).events
    expected = [] if projects == frozenset({"default"}) else [(1, "law"), (2, "law")]
    assert [(event.seq, event.project) for event in found] == expected
