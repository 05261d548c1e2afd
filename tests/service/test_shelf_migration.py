"""Attempts of jobs of before, on both databases: one that had not begun is counted when it does."""

from __future__ import annotations

from datetime import UTC, datetime

from alembic import command
from sqlalchemy import Engine

from service.ledger.database import migrations_config
from service.ledger.store import SqlJobStore
from service.ledger.usage import SqlUsageStore
from service.states import JobState


def test_a_second_attempt_that_was_starting_is_counted_once_it_runs(engine: Engine) -> None:
    config = migrations_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0005")
        columns = (
            "job_id, name, kind, spec_json, spec_sha256, created_at, state, attempt, is_log_saved, started_at, "
            "running_seconds"
        )
        values = (
            "'pt-1', 'n', 'pretrain', '{\"compute\": {}}', 'x', '2026-01-01', 'STARTING', 2, false, "
            "'2026-01-01 00:00:00', 60.0"
        )
        connection.exec_driver_sql(f"INSERT INTO jobs ({columns}) VALUES ({values})")
        command.upgrade(config, "head")
    store, usage = SqlJobStore(engine), SqlUsageStore(engine)
    assert [(one.attempt, one.ended_at is None) for one in usage.attempts_of("pt-1")] == [(1, False)]
    job = store.get("pt-1")
    assert job is not None
    store.update(job, state=JobState.RUNNING, started_at=job.started_at or datetime.now(UTC))
    assert [(one.attempt, one.ended_at is None) for one in usage.attempts_of("pt-1")] == [(1, False), (2, True)]
