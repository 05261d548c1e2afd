"""Readiness part by part, Prometheus's metrics, and lines of the log."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families
from service_doubles import make_job
from service_feeds import feeds
from sqlalchemy import Engine, text
from structlog.testing import capture_logs

from service.access.escaping import escape_controls
from service.errors import NotReadyError
from service.feeds.health import ServiceHealth
from service.feeds.metrics import ServiceMetrics
from service.http.desk import Desk
from service.ledger.health import SqlLedgerHealth
from service.ledger.store import SqlJobStore
from service.logs import configure_logs
from service.records import ClusterStatus
from service.settings import Settings
from service.states import JobState


def figures(text: str) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels, in the order of their names."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def alive(store: SqlJobStore, **changes: object) -> None:
    store.save_cluster_status(
        ClusterStatus(**{"reconciled_at": datetime.now(UTC), "is_ray_reachable": True, **changes})  # type: ignore[arg-type]
    )


def health_of(engine: Engine, settings: Settings) -> ServiceHealth:
    return ServiceHealth(SqlLedgerHealth(engine), SqlJobStore(engine), settings)


def absent(health: ServiceHealth) -> set[str]:
    return {name for name, part in health.parts().items() if not part.is_there}


def test_all_parts_are_there(engine: Engine, settings: Settings) -> None:
    alive(SqlJobStore(engine))
    assert list(health_of(engine, settings).check()) == ["database", "migrations", "reconciler", "leader", "ray"]


@pytest.mark.parametrize(("revision", "lacking"), [("0001", {"migrations"}), ("later", set())])
def test_tables_of_an_older_version_are_told_and_those_of_a_later_one_are_as_good(
    engine: Engine, settings: Settings, revision: str, lacking: set[str]
) -> None:
    alive(SqlJobStore(engine))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    assert absent(health_of(engine, settings)) == lacking


def test_a_database_without_tables_is_not_ready_and_says_no_address(engine: Engine, settings: Settings) -> None:
    health = health_of(engine, settings)
    with engine.begin() as connection:
        for table in ("leases", "cluster_status", "alembic_version"):
            connection.execute(text(f"DROP TABLE {table}"))
    parts = health.parts()
    assert {name for name, part in parts.items() if not part.is_there} == set(parts) - {"reconciler"}
    assert all("Error" in parts[name].detail or "older" in parts[name].detail for name in ("database", "migrations"))
    assert "leases" not in parts["database"].detail


def test_ray_may_be_done_without(engine: Engine, settings: Settings) -> None:
    alive(SqlJobStore(engine), is_ray_reachable=False, ray_error="away")
    assert absent(health_of(engine, settings)) == {"ray"}
    parts = health_of(engine, settings.model_copy(update={"ready_without_ray": True})).check()
    assert (parts["ray"].is_there, parts["ray"].is_needed, parts["ray"].detail) == (False, False, "away")


def test_a_leader_that_is_late_is_told_and_takes_nobody_out_of_service(engine: Engine, settings: Settings) -> None:
    alive(SqlJobStore(engine), reconciled_at=datetime.now(UTC) - timedelta(hours=1))
    health = health_of(engine, settings)
    with capture_logs() as lines:
        parts = health.check()
        health.check()
    assert (parts["leader"].is_there, parts["leader"].is_needed) == (False, False)
    assert "3600 seconds" in parts["leader"].detail
    assert [line["event"] for line in lines] == ["reconcile_lag"]


def test_a_replica_whose_own_threads_are_at_fault_is_not_ready(engine: Engine, settings: Settings) -> None:
    store = SqlJobStore(engine)
    alive(store)
    health = ServiceHealth(SqlLedgerHealth(engine), store, settings, own_fault=lambda: "The loop hangs.")
    with pytest.raises(NotReadyError, match="reconciler: The loop hangs") as caught:
        health.check()
    assert [fault.pointer for fault in caught.value.faults] == ["/parts/reconciler"]


@pytest.mark.anyio
async def test_what_is_absent_is_named_in_the_answer(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    alive(store, is_ray_reachable=False, ray_error="away")
    answer = (await client.get("/readyz")).json()
    assert [item["pointer"] for item in answer["errors"]] == ["/parts/ray"]
    assert all(name in answer["detail"] for name in ("database:", "migrations:", "reconciler:", "ray: away"))
    alive(store)
    parts = (await client.get("/readyz")).json()["parts"]
    assert {part["state"] for part in parts.values()} == {"ok"}


@pytest.mark.anyio
async def test_requests_are_counted_by_template(client: httpx.AsyncClient) -> None:
    for path in ("/v1/jobs/a", "/v1/jobs/b", "/nowhere/1", "/nowhere/2"):
        assert (await client.get(path)).status_code == 404
    await client.request("BREW", "/v1/jobs")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    seen = figures(answer.text)
    name = "electra_http_request_seconds_count"
    assert seen[name, "GET", "/v1/jobs/{job_id}", "4xx"] == 2
    assert seen[name, "GET", "unmatched", "4xx"] == 2
    labels = {key[1:] for key in seen if key[0] == name}
    assert all("nowhere" not in route and method in ("GET", "other") for method, route, _ in labels)


def test_the_queue_is_counted(engine: Engine) -> None:
    store = SqlJobStore(engine)
    now = datetime.now(UTC)
    for age in (10, 300):
        store.insert(make_job(created_at=now - timedelta(seconds=age)))
    store.insert(make_job(state=JobState.RUNNING))
    alive(store, reconciled_at=now - timedelta(seconds=7))
    metrics = ServiceMetrics(SqlLedgerHealth(engine), store, is_lease_held=lambda: True, now=lambda: now)
    seen = figures(metrics.render().decode())
    assert (seen["electra_jobs", "QUEUED"], seen["electra_jobs", "RUNNING"], seen["electra_jobs", "FAILED"]) == (
        2,
        1,
        0,
    )
    assert seen["electra_oldest_queued_seconds",] == pytest.approx(300)
    assert seen["electra_reconcile_lag_seconds",] == pytest.approx(7)
    assert (seen["electra_lease_held",], seen["electra_ray_reachable",], seen["electra_database_up",]) == (1, 1, 1)


def test_the_wait_in_the_queue_is_counted_once_a_job(engine: Engine) -> None:
    metrics = ServiceMetrics(SqlLedgerHealth(engine), SqlJobStore(engine))
    store = SqlJobStore(engine, on_update=metrics.observe_update)
    job = make_job()
    store.insert(job)
    job = store.update(job, state=JobState.STARTING, attempt=1)
    job = store.update(job, state=JobState.RUNNING, started_at=job.created_at + timedelta(seconds=40))
    job = store.update(job, state=JobState.STARTING, attempt=2)
    job = store.update(job, state=JobState.RUNNING, started_at=job.started_at)
    store.update(job, state=JobState.FAILED)
    seen = figures(metrics.render().decode())
    assert (seen["electra_queue_wait_seconds_count",], seen["electra_queue_wait_seconds_sum",]) == (1, 40)
    assert seen["electra_jobs_ended_total", "FAILED"] == 1


def test_metrics_outlive_the_database(engine: Engine) -> None:
    metrics = ServiceMetrics(SqlLedgerHealth(engine), SqlJobStore(engine))
    metrics.observe_round(0.5)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE cluster_status"))
    with capture_logs():
        seen = figures(metrics.render().decode())
    assert (seen["electra_database_up",], seen["electra_reconcile_round_seconds_count",]) == (0, 1)


def test_two_applications_count_apart(settings: Settings, store: SqlJobStore) -> None:
    first, second = (feeds(store._engine, store, settings)["metrics"] for _ in range(2))
    first.observe_round(1.0)
    assert figures(second.render().decode())["electra_reconcile_round_seconds_count",] == 0


@pytest.mark.anyio
async def test_a_request_is_one_line_without_what_the_client_wrote(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await client.get("/v1/jobs/pt-1", headers={"X-Request-ID": "r-1"})
    await client.get("/no%1b%5b2J%0aforged")
    known, unknown = (record.__dict__ for record in caplog.records if record.getMessage() == "request")
    assert (known["route"], known["status"], known["request_id"], known["job_id"]) == (
        "/v1/jobs/{job_id}", 404, "r-1", "pt-1",
    )  # fmt: skip
    assert known["seconds"] >= 0
    assert unknown["path"].isprintable()


@pytest.mark.anyio
async def test_a_surprise_is_counted_as_one(
    client: httpx.AsyncClient, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.jobs, "get", lambda job_id: 1 / 0)
    assert (await client.get("/v1/jobs/pt-1")).status_code == 500
    seen = figures((await client.get("/metrics")).text)
    assert seen["electra_http_request_seconds_count", "GET", "/v1/jobs/{job_id}", "5xx"] == 1


def test_nothing_forges_a_line_of_the_console() -> None:
    event = escape_controls(None, "info", {"event": "x", "name": "a\nforged \x1b[2J é", "exception": "two\nlines"})
    assert event["name"] == "a\\nforged \\x1b[2J é"
    assert event["exception"] == "two\nlines"


def test_json_lines_are_one_document_each(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level, config = root.handlers, root.level, structlog.get_config()
    try:
        configure_logs(log_json=True)
        logging.getLogger("some.library").warning("a\nforged %s", "\x1b[2J")
        (line,) = capsys.readouterr().err.splitlines()
        assert json.loads(line)["event"] == "a\nforged \x1b[2J"
    finally:
        root.handlers = before
        root.setLevel(level)
        structlog.configure(**config)
