"""Who follows something is looked at again and again, and takes so many places and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from access_world import ROOT, AccessWorld, keys_settings
from live_service import serve_desk
from service_shelf import export_files, made_by

from service.access.principals import Role
from service.http.streams import while_allowed
from service.states import JobState

pytestmark = pytest.mark.anyio

FOLLOWED = ("/v1/events", "/v1/jobs/{}/events", "/v1/jobs/{}/logs?follow=true", "/v1/jobs/{}/logs?follow=1&level=info")

ENDED = (200, 401)
"""What a stream answers that ended after it began, or before."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AccessWorld]:
    monkeypatch.setattr("service.http.streams.CHECK_SECONDS", 0.02)
    world = AccessWorld(keys_settings(tmp_path, max_streams_per_principal=2))
    yield world
    world.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)


def revoke(world: AccessWorld, who: str) -> None:
    world.access.revoke_key(ROOT, world.keys[who].split("_")[1])


@pytest.mark.parametrize("path", FOLLOWED)
async def test_a_stream_ends_when_its_key_is_revoked(world: AccessWorld, path: str) -> None:
    path = path.format(world.job().job_id)
    async with world.client() as client:
        following = asyncio.create_task(client.get(path, headers=world.bearer("ada")))
        await until(lambda: len(world.access.streams) == 1)
        revoke(world, "ada")
        answer = await asyncio.wait_for(following, 60)
    assert answer.status_code in ENDED
    assert "event: end" not in answer.text
    assert len(world.access.streams) == world.desk.events.num_followers == 0


async def test_a_stream_ends_when_its_key_expires(world: AccessWorld) -> None:
    world.keys["short"] = world.key("vera", "clinical", Role.VIEWER, lifetime_days=1)
    async with world.client() as client:
        following = asyncio.create_task(client.get("/v1/events", headers=world.bearer("short")))
        await until(lambda: len(world.access.streams) == 1)
        world.now += timedelta(days=2)
        assert (await asyncio.wait_for(following, 60)).status_code in ENDED


async def test_nobody_takes_the_places_of_others(world: AccessWorld) -> None:
    over, going_on = world.job(state=JobState.SUCCEEDED), world.job()
    async with world.client() as client:
        following = [asyncio.create_task(client.get("/v1/events", headers=world.bearer("ada"))) for _ in range(2)]
        await until(lambda: len(world.access.streams) == 2)
        for path in FOLLOWED:
            refused = await client.get(path.format(going_on.job_id), headers=world.bearer("ada"))
            assert (refused.status_code, refused.json()["code"]) == (503, "too_many_followers")
        assert (await client.get(f"/v1/jobs/{over.job_id}/events", headers=world.bearer("ben"))).status_code == 200
        revoke(world, "ada")
        await asyncio.wait_for(asyncio.gather(*following), 60)
    assert len(world.access.streams) == 0


async def test_a_stream_that_is_refused_takes_no_place(world: AccessWorld) -> None:
    world.desk.events._max_followers = 0
    async with world.client() as client:
        assert (await client.get("/v1/events", headers=world.bearer("ada"))).status_code == 503
    assert len(world.access.streams) == 0


@pytest.mark.parametrize("path", FOLLOWED)
async def test_who_goes_away_gives_the_place_back(world: AccessWorld, path: str) -> None:
    path = path.format(world.job().job_id)
    with serve_desk(world.settings, world.desk) as url, httpx.Client(base_url=url, trust_env=False) as client:
        with client.stream("GET", path, headers=world.bearer("ada")) as answer:
            assert answer.status_code == 200
            assert len(world.access.streams) == 1
        await until(lambda: len(world.access.streams) == 0)


async def counted(number: int) -> AsyncGenerator[int]:
    for one in range(number):
        yield one


async def test_what_is_followed_passes_as_it_is() -> None:
    assert [item async for item in while_allowed(counted(5), lambda: True)] == list(range(5))


async def test_who_cannot_be_looked_up_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is away for a moment ends no stream; nothing comes from it meanwhile."""
    monkeypatch.setattr("service.http.streams.CHECK_SECONDS", 0.02)
    answers: Iterator[Callable[[], bool]] = iter([lambda: bool(1 // 0), lambda: True, lambda: False])

    async def silent() -> AsyncGenerator[int]:
        await asyncio.Event().wait()
        yield 1

    stream = while_allowed(silent(), lambda: next(answers)())
    assert [item async for item in stream] == []
    assert list(answers) == []


def exported(world: AccessWorld, size_bytes: int) -> str:
    """The path of an export of so many bytes, of a model of Ada's project."""
    job = world.job(state=JobState.SUCCEEDED)
    name = f"{job.project}--big"
    world.folders.results[job.job_id] = made_by(world.settings, job.job_id, name, 1)
    world.registry.add(name, 1, tags={"electra.job_id": job.job_id})
    with (export_files(world.settings, job.job_id) / "weights").open("wb") as file:
        file.truncate(size_bytes)
    return f"/v1/models/{name}/versions/1/export"


async def test_an_archive_ends_early_when_its_key_is_revoked_and_shows_it(world: AccessWorld) -> None:
    """Larger than what connections buffer."""
    path = exported(world, 200 << 20)
    with serve_desk(world.settings, world.desk) as url, httpx.Client(base_url=url, trust_env=False) as client:
        with client.stream("GET", path, headers=world.bearer("ada")) as answer:
            assert (answer.status_code, len(world.access.streams)) == (200, 1)
            pieces = answer.iter_raw()
            next(pieces)
            revoke(world, "ada")
            with pytest.raises(httpx.RemoteProtocolError):
                sum(map(len, pieces))
        await until(lambda: len(world.access.streams) == world.desk.shelf.exports.archives.num_open == 0)


async def test_an_archive_that_nobody_takes_is_given_up(world: AccessWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.http.streams.SEND_TIMEOUT_SECONDS", 0.2)
    path = exported(world, 200 << 20)
    with (
        serve_desk(world.settings, world.desk) as url,
        httpx.Client(base_url=url, trust_env=False) as client,
        client.stream("GET", path, headers=world.bearer("ada")) as answer,
    ):
        assert answer.status_code == 200
        await until(lambda: world.desk.shelf.exports.archives.num_open == len(world.access.streams) == 0)


async def test_no_more_archives_are_sent_than_may_be(world: AccessWorld) -> None:
    path = exported(world, 1)
    world.desk.shelf.exports.archives._most = 1
    async with world.client() as client:
        first = world.desk.shelf.exports.archives.sent([])
        await anext(first)
        refused = await client.get(path, headers=world.bearer("ada"))
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_followers")
        assert len(world.access.streams) == 0
        await first.aclose()
        answer = await client.get(path, headers=world.bearer("ada"))
        assert (answer.status_code, len(answer.content)) == (200, int(answer.headers["content-length"]))
    assert world.desk.shelf.exports.archives.num_open == 0


async def test_printed_logs_have_no_more_followers_than_may_be(world: AccessWorld) -> None:
    over, path = world.job(state=JobState.SUCCEEDED), "/v1/jobs/{}/logs?follow=true"
    world.desk.kept_logs._max_followers = 1
    async with world.client() as client:
        following = asyncio.create_task(client.get(path.format(world.job().job_id), headers=world.bearer("ada")))
        await until(lambda: world.desk.kept_logs.num_followers == 1)
        refused = await client.get(path.format(over.job_id), headers=world.bearer("ben"))
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_followers")
        revoke(world, "ada")
        await asyncio.wait_for(following, 60)
    assert world.desk.kept_logs.num_followers == 0
