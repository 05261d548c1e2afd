"""Prepared corpora over REST: size, users, last use, and who sees which."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from access_world import AccessWorld, keys_settings
from service_doubles import make_job
from service_shelf import DIGEST, keep_corpus

from service.ledger.store import SqlJobStore
from service.settings import Settings
from service.states import JobState

pytestmark = pytest.mark.anyio

OTHER = "cd" * 32


async def test_a_corpus_tells_its_size_its_users_and_its_last_use(
    client: httpx.AsyncClient, settings: Settings, store: SqlJobStore
) -> None:
    ended = datetime.now(UTC) + timedelta(hours=1)
    job = make_job(state=JobState.SUCCEEDED, attempt=1, finished_at=ended)
    store.insert(job)
    keep_corpus(settings, job.job_id, "ray-submitted")
    found = (await client.get(f"/v1/corpora/{DIGEST}")).json()
    assert (found["num_tokens"], found["num_documents"], found["num_text_bytes"]) == (60, 6, 300)
    manifest = Path(settings.storage_uri, "corpora", DIGEST, "manifest.json")
    assert found["size_bytes"] == 100 + manifest.stat().st_size
    assert [user["job_id"] for user in found["jobs"]] == [job.job_id]
    assert datetime.fromisoformat(found["last_used_at"]) == ended


async def test_a_later_note_is_a_later_use(client: httpx.AsyncClient, settings: Settings) -> None:
    keep_corpus(settings, "ray-submitted")
    later = datetime(2030, 1, 1, tzinfo=UTC)
    note = Path(settings.storage_uri, "corpora", DIGEST, "uses", "ray-submitted.json")
    os.utime(note, (later.timestamp(), later.timestamp()))
    found = (await client.get(f"/v1/corpora/{DIGEST}")).json()
    assert datetime.fromisoformat(found["last_used_at"]) == later


async def test_pages_join_to_all_that_are_complete(client: httpx.AsyncClient, settings: Settings) -> None:
    digests = [f"{number:064x}" for number in range(5)]
    for digest in digests:
        keep_corpus(settings, digest=digest)
    Path(settings.storage_uri, "corpora", digests[2], "manifest.json").unlink()
    first = (await client.get("/v1/corpora?limit=3")).json()
    rest = (await client.get(f"/v1/corpora?cursor={first['next_cursor']}")).json()
    found = [item["digest"] for item in (*first["items"], *rest["items"])]
    assert (found, rest["next_cursor"]) == ([digests[0], digests[1], digests[3], digests[4]], None)


@pytest.mark.parametrize("digest", ["0" * 64, "..", "%2e%2e%2fjobs", "0" * 63, "0" * 63 + "%0a", "AB" * 32])
async def test_no_path_is_a_digest(client: httpx.AsyncClient, settings: Settings, digest: str) -> None:
    keep_corpus(settings)
    assert (await client.get(f"/v1/corpora/{digest}")).status_code in (404, 422)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AccessWorld]:
    world = AccessWorld(keys_settings(tmp_path))
    yield world
    world.close()


@pytest.fixture
async def keyed(world: AccessWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client() as client:
        yield client


async def test_each_sees_corpora_and_jobs_of_their_projects(keyed: httpx.AsyncClient, world: AccessWorld) -> None:
    ours, theirs = world.job().job_id, world.job("eve", "law").job_id
    keep_corpus(world.settings, ours, theirs)
    keep_corpus(world.settings, theirs, digest=OTHER)
    seen = {}
    for who in ("ada", "eve", "root"):
        page = (await keyed.get("/v1/corpora", headers=world.bearer(who))).json()
        seen[who] = {item["digest"]: {user["job_id"] for user in item["jobs"]} for item in page["items"]}
    assert seen["ada"] == {DIGEST: {ours}}
    assert seen["eve"] == {DIGEST: {theirs}, OTHER: {theirs}}
    assert seen["root"] == {DIGEST: {ours, theirs}, OTHER: {theirs}}
    hidden = await keyed.get(f"/v1/corpora/{OTHER}", headers=world.bearer("ada"))
    assert (hidden.status_code, hidden.json()["code"]) == (404, "corpus_not_found")


async def test_when_a_hidden_project_used_a_corpus_is_not_told(keyed: httpx.AsyncClient, world: AccessWorld) -> None:
    ours, theirs = world.job().job_id, world.job("eve", "law").job_id
    keep_corpus(world.settings, ours, theirs)
    later = datetime(2030, 1, 1, tzinfo=UTC)
    note = Path(world.settings.storage_uri, "corpora", DIGEST, "uses", f"{theirs}.json")
    os.utime(note, (later.timestamp(), later.timestamp()))
    told = {}
    for who in ("ada", "eve", "root"):
        found = (await keyed.get(f"/v1/corpora/{DIGEST}", headers=world.bearer(who))).json()
        told[who] = datetime.fromisoformat(found["last_used_at"]) == later
    assert told == {"ada": False, "eve": True, "root": True}


async def test_no_request_looks_at_more_folders_than_so_many(
    keyed: httpx.AsyncClient, world: AccessWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that are short for it, or empty, join all the same."""
    monkeypatch.setattr("service.shelf.corpora.MAX_LOOKS", 2)
    ours, theirs = world.job().job_id, world.job("eve", "law").job_id
    digests = [f"{number:064x}" for number in range(7)]
    for number, digest in enumerate(digests):
        keep_corpus(world.settings, ours if number in (0, 5) else theirs, digest=digest)
    found, cursor = [], ""
    for _ in range(4):
        page = (await keyed.get(f"/v1/corpora{cursor}", headers=world.bearer("ada"))).json()
        found.append([item["digest"] for item in page["items"]])
        cursor = f"?cursor={page['next_cursor']}"
    assert (found, page["next_cursor"]) == ([[digests[0]], [], [digests[5]], []], None)


async def test_the_files_of_a_corpus_are_walked_over_once(
    client: httpx.AsyncClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is made anew. Who uses it is looked at each time."""
    keep_corpus(settings, "a")
    first = (await client.get(f"/v1/corpora/{DIGEST}")).json()
    extra = Path(settings.storage_uri, "corpora", DIGEST, "source-000", "extra.bin")
    extra.write_bytes(b"1234567")
    later = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    note = Path(settings.storage_uri, "corpora", DIGEST, "uses", "a.json")
    os.utime(note, (later, later))
    again = (await client.get(f"/v1/corpora/{DIGEST}")).json()
    assert (again["size_bytes"], again["last_used_at"] > first["last_used_at"]) == (first["size_bytes"], True)
    os.utime(Path(settings.storage_uri, "corpora", DIGEST, "manifest.json"), (1, 1))
    assert (await client.get(f"/v1/corpora/{DIGEST}")).json()["size_bytes"] == first["size_bytes"] + 7
