"""The audit log: what stands in it, who reads it, and that nobody changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from access_world import TINY, AccessWorld, keys_settings
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from service.access.escaping import escape
from service.access.interfaces import AuditFilter
from service.ledger.access_store import SqlAccessStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AccessWorld]:
    world = AccessWorld(keys_settings(tmp_path, failed_logins_per_minute=3))
    yield world
    world.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET principal = 'nobody'",
        "DELETE FROM audit_log",
        "INSERT OR REPLACE INTO audit_log SELECT audit_id, at, request_id, 'nobody', action, object, project, outcome, "
        "address FROM audit_log",
    ],
)
def test_rows_can_neither_be_changed_nor_deleted_nor_replaced(world: AccessWorld, statement: str) -> None:
    before = world.access.store.page_audit(AuditFilter())
    assert before
    with pytest.raises(DatabaseError, match="only grows"), world.engine.begin() as connection:
        connection.execute(text(statement))
    assert world.access.store.page_audit(AuditFilter()) == before


async def test_each_change_and_each_refusal_has_a_row(world: AccessWorld) -> None:
    async with world.client("192.0.2.7") as client:
        made = await client.post("/v1/jobs", json=TINY, headers={**world.bearer("ada"), "X-Request-ID": "r1"})
        job_id = made.json()["job_id"]
        await client.post(f"/v1/jobs/{job_id}/cancel", headers=world.bearer("ada"))
        await client.post(f"/v1/jobs/{job_id}/cancel", headers=world.bearer("ben"))
        await client.get(f"/v1/jobs/{job_id}", headers=world.bearer("eve"))
        await client.get("/v1/jobs/pt-nowhere", headers=world.bearer("eve"))
        await client.get("/v1/jobs", headers={"Authorization": "Bearer elk_no\x1b[2J"})
        await client.get("/v1/jobs", headers=world.bearer("ada"))
        rows = (await client.get("/v1/audit?limit=7", headers=world.bearer("root"))).json()["items"][::-1]
    told = [(row["principal"].partition(" ")[0], row["action"], row["object"], row["outcome"]) for row in rows[-6:]]
    assert told == [
        ("ada", "job.create", job_id, "done"),
        ("ada", "job.cancel", job_id, "done"),
        ("ben", "job.cancel", job_id, "refused 403"),
        ("eve", "GET /v1/jobs/{job_id}", job_id, "refused 404"),
        ("eve", "GET /v1/jobs/{job_id}", "pt-nowhere", "refused 404"),
        ("anonymous", "authenticate", "GET /v1/jobs", "refused 401"),
    ]
    assert rows[-6]["request_id"] == "r1"
    assert {row["address"] for row in rows[-6:]} == {"192.0.2.7"}


async def test_a_job_that_is_not_taken_leaves_no_row_that_says_it_was(
    world: AccessWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of a job and its row of the log are one transaction: a log that cannot be written takes no job."""
    with world.engine.begin() as connection:
        connection.execute(
            text("CREATE TRIGGER full BEFORE INSERT ON audit_log BEGIN SELECT RAISE(ABORT, 'full'); END")
        )
    async with world.client() as client:
        answer = await client.post("/v1/jobs", json=TINY, headers=world.bearer("ada"))
        assert answer.status_code == 500
        assert (await client.get("/v1/jobs", headers=world.bearer("ada"))).json()["items"] == []


async def test_failures_of_an_address_are_counted_and_do_not_fill_the_log(world: AccessWorld) -> None:
    async with world.client("192.0.2.7") as client:
        answers = [await client.get("/v1/jobs") for _ in range(10)]
        assert [answer.status_code for answer in answers] == [401] * 3 + [429] * 7
        assert answers[-1].headers["retry-after"] == "20"
        assert (await client.get("/v1/jobs", headers=world.bearer("ada"))).status_code == 200
    failed = world.access.store.page_audit(AuditFilter(action="authenticate"))
    assert len(failed) == 3


async def test_administrators_read_the_rows_of_their_projects(world: AccessWorld) -> None:
    async with world.client() as client:
        await client.post("/v1/jobs", json=TINY, headers=world.bearer("ada"))
        await client.post("/v1/jobs", json=TINY, headers=world.bearer("eve"))
        rows = (await client.get("/v1/audit", headers=world.bearer("admin"))).json()["items"]
        assert {row["project"] for row in rows} == {"clinical"}
        none = await client.get("/v1/audit?project=law", headers=world.bearer("admin"))
        assert none.json()["items"] == []
        seen: list[int] = []
        cursor = ""
        while cursor is not None:
            page = (await client.get(f"/v1/audit?limit=3{cursor}", headers=world.bearer("root"))).json()
            seen += [row["audit_id"] for row in page["items"]]
            cursor = None if page["next_cursor"] is None else f"&cursor={page['next_cursor']}"
    assert seen == sorted(set(seen), reverse=True)
    assert seen[-1] == 1


async def test_a_refusal_is_of_the_project_that_the_request_was_for(world: AccessWorld) -> None:
    wrong = {"spec": {"kind": "pretrain", "preset": "tiny", "name": "a b"}}
    async with world.client() as client:
        for who, body in (("viewer", TINY), ("ada", wrong), ("ada", {**TINY, "project": "law"})):
            await client.post("/v1/jobs", json={"project": "clinical", **body}, headers=world.bearer(who))
    rows = world.access.store.page_audit(AuditFilter(action="job.create"))
    told = [(row.principal.partition(" ")[0], row.project, row.outcome) for row in reversed(rows)]
    assert told == [
        ("vera", None, "refused 403"),
        ("ada", "clinical", "refused 422"),
        ("ada", None, "refused 404"),
    ]


async def test_no_secret_stands_in_the_database(world: AccessWorld) -> None:
    async with world.client() as client:
        await client.post("/v1/jobs", json=TINY, headers=world.bearer("ada"))
    with world.engine.connect() as connection:
        kept = [
            str(row)
            for table in ("api_keys", "audit_log")
            for row in connection.execute(text(f"SELECT * FROM {table}"))
        ]
    for key in world.keys.values():
        assert not any(key.split("_", 2)[2] in row for row in kept)


@pytest.mark.anyio
@pytest.mark.parametrize("query", ["audit?principal", "audit?action", "audit?object", "jobs?name"])
async def test_what_no_database_can_compare_is_refused(world: AccessWorld, query: str) -> None:
    async with world.client() as client:
        answer = await client.get(f"/v1/{query}=a%00b", headers=world.bearer("root"))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_a_line_stays_a_line() -> None:
    assert escape("a\nb\x1b[2J\u202e\\") == "a\\nb\\x1b[2J\\u202e\\\\"
    assert escape("x" * 9, 5) == "xxxxx…"


async def test_a_use_that_cannot_be_written_down_keeps_nobody_out(world: AccessWorld) -> None:
    with world.engine.begin() as connection:
        full = "CREATE TRIGGER full BEFORE UPDATE ON api_keys BEGIN SELECT RAISE(ABORT, 'full'); END"
        connection.execute(text(full))
    async with world.client() as client:
        assert (await client.get("/v1/jobs", headers=world.bearer("ada"))).status_code == 200


def test_a_use_is_written_down_once_a_minute(world: AccessWorld) -> None:
    from datetime import timedelta

    store = world.access.store
    assert isinstance(store, SqlAccessStore)
    key_id = world.keys["ada"].split("_")[1]
    start = world.now
    for seconds, seen in ((0, 0), (59, 0), (61, 61)):
        world.now = start + timedelta(seconds=seconds)
        world.access.authenticate([f"Bearer {world.keys['ada']}"])
        found = store.find_key(key_id)
        assert found is not None
        assert found.last_used_at == start + timedelta(seconds=seen)
