"""A database that goes away and comes back: requests are refused in words that say to ask again."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import create_engine, text

from service.app import create_app
from service.dispatch.reconciler import Reconciler
from service.settings import Settings


@pytest.mark.anyio
async def test_requests_are_refused_as_passing_while_the_database_is_away(
    settings: Settings, postgres: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As clients know it: they repeat what may be repeated."""
    monkeypatch.setattr(Reconciler, "start", lambda self: None)
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    server = create_engine(postgres.format(database="postgres"), isolation_level="AUTOCOMMIT")
    app = create_app(settings.model_copy(update={"database_url": postgres_url, "check_capacity": False}))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    job = {"spec": {"kind": "pretrain", "preset": "tiny"}}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        with server.connect() as connection:
            connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
            )
        listed = await client.get("/v1/jobs")
        created = await client.post("/v1/jobs", json=job, headers={"Idempotency-Key": "one"})
        for answer in (listed, created):
            assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
            assert answer.headers["Retry-After"] == "5"
        with server.connect() as connection:
            connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
        again = await client.post("/v1/jobs", json=job, headers={"Idempotency-Key": "one"})
        assert again.status_code == 202
        page = (await client.get("/v1/jobs")).json()
        assert [item["job_id"] for item in page["items"]] == [again.json()["job_id"]]
    server.dispose()
