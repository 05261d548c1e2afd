"""What is shared by all projects is claimed by nobody beyond the settings, but by administrators of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_world import TINY, AccessWorld, keys_settings

from service.records import JobLimits
from service.states import JobState

pytestmark = pytest.mark.anyio

TOO_MUCH: dict[str, dict[str, Any]] = {
    "/priority": {"priority": 6},
    "/limits/starting_seconds": {"limits": {"starting_seconds": 3601}},
    "/limits/running_seconds": {"limits": {"running_seconds": 7201}},
    "/limits/silence_seconds": {"limits": {"silence_seconds": 1801}},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AccessWorld]:
    world = AccessWorld(keys_settings(tmp_path, max_member_priority=5, running_timeout_seconds=7200))
    yield world
    world.close()


@pytest.mark.parametrize("pointer", TOO_MUCH)
async def test_a_new_job_claims_no_more_than_the_settings_give(world: AccessWorld, pointer: str) -> None:
    body = {**TINY, **TOO_MUCH[pointer], "project": "clinical"}
    async with world.client() as client:
        for who in ("ada", "admin"):
            refused = await client.post("/v1/jobs", json=body, headers=world.bearer(who))
            assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
            assert [item["pointer"] for item in refused.json()["errors"]] == [pointer]
        assert (await client.post("/v1/jobs", json=body, headers=world.bearer("root"))).status_code == 202


async def test_a_new_job_claims_what_the_settings_give(world: AccessWorld) -> None:
    limits = {"starting_seconds": 3600, "running_seconds": 7200, "silence_seconds": 1}
    async with world.client() as client:
        for priority in (5, -100):
            body = {**TINY, "priority": priority, "limits": limits}
            assert (await client.post("/v1/jobs", json=body, headers=world.bearer("ada"))).status_code == 202


async def test_an_edit_raises_no_job_beyond_the_bound(world: AccessWorld) -> None:
    job = world.job()
    async with world.client() as client:
        for who, priority, status in (("ada", 6, 403), ("ada", 5, 200), ("ada", None, 200), ("root", 100, 200)):
            body = {"priority": priority}
            answer = await client.patch(f"/v1/jobs/{job.job_id}", json=body, headers=world.bearer(who))
            assert answer.status_code == status, answer.text


@pytest.mark.parametrize("verb", ["retry", "clone"])
async def test_a_job_from_a_job_inherits_what_its_owner_may_give(world: AccessWorld, verb: str) -> None:
    limits = JobLimits(running_seconds=9000, silence_seconds=60)
    old = world.job(priority=100, limits=limits, state=JobState.FAILED)
    path = f"/v1/jobs/{old.job_id}/{verb}"
    async with world.client() as client:
        ours = (await client.post(path, headers=world.bearer("ada"))).json()
        roots = (await client.post(path, headers=world.bearer("root"))).json()
        for given in TOO_MUCH.values():
            refused = await client.post(path, json=given, headers=world.bearer("ada"))
            assert refused.status_code == 403, refused.text
    assert (ours["priority"], ours["limits"]) == (5, JobLimits(silence_seconds=60).model_dump())
    assert (roots["priority"], roots["limits"]) == (100, limits.model_dump())
