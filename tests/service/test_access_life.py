"""Who may rule a job's life, make jobs from jobs and follow events; and the row that each of it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from access_world import TINY, AccessWorld, keys_settings
from service_doubles import START
from sqlalchemy import text

from pipelines.specs.parsing import dump_spec, resolve_spec
from service.access.interfaces import AuditFilter
from service.access.principals import Permission, Role
from service.feeds.feed import Opened
from service.feeds.records import JobEvent
from service.records import ClusterStatus, Job, JobFailure
from service.states import JobState

pytestmark = pytest.mark.anyio

VERBS: dict[str, dict[str, Any]] = {
    "cancel": {},
    "kill": {},
    "pause": {},
    "resume": {"state": JobState.PAUSED, "pause_requested_at": START},
    "archive": {"state": JobState.FAILED},
    "unarchive": {"state": JobState.FAILED, "is_archived": True},
    "edit": {},
    "retry": {"state": JobState.FAILED},
    "clone": {},
}
"""What a job must be for each."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AccessWorld]:
    settings = keys_settings(tmp_path / "home", source_roots=[str(tmp_path / "data")], event_stream_seconds=0.05)
    world = AccessWorld(settings)
    yield world
    world.close()


async def ask(
    client: httpx.AsyncClient, world: AccessWorld, verb: str, job: Job, who: str = "ada", **given: Any
) -> httpx.Response:
    headers = {**world.bearer(who), **given.pop("headers", {})}
    if verb == "edit":
        return await client.patch(f"/v1/jobs/{job.job_id}", json={"notes": "new"}, headers=headers)
    return await client.post(f"/v1/jobs/{job.job_id}/{verb}", headers=headers, **given)


def rows(world: AccessWorld, action: str) -> list[tuple[str, str | None, str, str]]:
    found = world.access.store.page_audit(AuditFilter(action=action))
    return [(row.principal.partition(" ")[0], row.project, row.object, row.outcome) for row in reversed(found)]


def job_with(world: AccessWorld, state: JobState = JobState.FAILED, **spec: Any) -> Job:
    resolved = resolve_spec({"kind": "pretrain", "preset": "tiny", **spec})
    return world.job(spec_json=dump_spec(resolved), name=resolved.name, state=state)


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_leaves_one_row_and_a_refusal_another(world: AccessWorld, verb: str) -> None:
    job = world.job(**VERBS[verb])
    async with world.client() as client:
        answer = await ask(client, world, verb, job)
        assert answer.is_success, answer.text
        refused = await ask(client, world, verb, job, "viewer")
        assert refused.status_code == 403
    done, denied = rows(world, f"job.{verb}")
    made = answer.json()["job_id"]
    assert done == ("ada", "clinical", made, "done")
    assert (made == job.job_id) == (verb not in ("retry", "clone"))
    assert denied == ("vera", "clinical", job.job_id, "refused 403")


@pytest.mark.parametrize("verb", VERBS)
async def test_what_cannot_be_recorded_is_not_done(world: AccessWorld, verb: str) -> None:
    """The row of the log and the change are one transaction, and no event tells of what was taken back."""
    job = world.job(**VERBS[verb])
    events = world.desk.events._store
    told = events.read_events(0, 100)
    with world.engine.begin() as connection:
        connection.execute(
            text("CREATE TRIGGER full BEFORE INSERT ON audit_log BEGIN SELECT RAISE(ABORT, 'full'); END")
        )
    async with world.client() as client:
        assert (await ask(client, world, verb, job)).status_code == 500
    assert world.store.get(job.job_id) == job
    assert events.read_events(0, 100) == told


async def test_a_wish_that_is_said_again_is_a_row_again_and_no_second_event(world: AccessWorld) -> None:
    job = world.job()
    async with world.client() as client:
        for _ in range(2):
            await ask(client, world, "kill", job)
    assert rows(world, "job.kill") == [("ada", "clinical", job.job_id, "done")] * 2
    assert len(world.desk.events._store.read_events(0, 100, job.job_id).events) == 2


@pytest.mark.parametrize("verb", ["retry", "clone"])
async def test_a_job_from_a_colleagues_is_ones_own_in_the_same_project(world: AccessWorld, verb: str) -> None:
    job = world.job("ada", state=JobState.FAILED)
    async with world.client() as client:
        made = (await ask(client, world, verb, job, "ben")).json()
        assert (made["owner"], made["project"], made[f"{verb}_of"]) == ("ben", "clinical", job.job_id)
        of_all = (await ask(client, world, verb, job, "root")).json()
        assert (of_all["owner"], of_all["project"]) == ("root", "clinical")
        elsewhere = await ask(client, world, verb, job, "ben", json={"project": "law"})
        assert (elsewhere.status_code, elsewhere.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize("verb", ["retry", "clone"])
async def test_jobs_from_jobs_are_admitted_as_any(world: AccessWorld, verb: str) -> None:
    """A job that was taken under other rules is no way around those of today; nor is an override."""
    outside = {"corpus": {"sources": [{"type": "text", "uris": "/etc/passwd"}]}}
    secret = {"corpus": {"sources": [{"type": "text", "uris": "https://u:hunter2@example.org/a.txt"}]}}
    async with world.client() as client:
        for spec, code in ((outside, "source_not_allowed"), (secret, "secret_in_request")):
            refused = await ask(client, world, verb, job_with(world, **spec))
            assert (refused.status_code, refused.json()["code"]) == (422, code)
            assert "hunter2" not in refused.text
        override = {"overrides": [f"corpus.sources={json.dumps(outside['corpus']['sources'])}"]}
        refused = await ask(client, world, verb, job_with(world), json=override)
        assert refused.json()["code"] == "source_not_allowed", refused.text


async def test_names_of_a_clone_are_those_of_its_project(world: AccessWorld) -> None:
    async with world.client() as client:
        old = (await client.post("/v1/jobs", json=TINY, headers=world.bearer("ada"))).json()
        path = f"/v1/jobs/{old['job_id']}/clone"
        for overrides, name in (
            ([], f"clinical--{old['name']}"),
            (["name=other"], "clinical--other"),
            (["record.model_name=law--x"], "clinical--law--x"),
        ):
            made = await client.post(path, json={"overrides": overrides}, headers=world.bearer("ada"))
            spec = (await client.get(made.headers["location"], headers=world.bearer("ada"))).json()["spec"]
            assert spec["record"]["model_name"] == name


async def test_a_retry_without_changes_is_known_by_its_spec_in_every_project(world: AccessWorld) -> None:
    failure = JobFailure(code="out_of_memory", message="m", attempt=1)
    async with world.client() as client:
        made = (await client.post("/v1/jobs", json=TINY, headers=world.bearer("ada"))).json()
        taken = world.store.get(made["job_id"])
        assert taken is not None
        old = world.job(spec_json=taken.spec_json, name=taken.name, state=JobState.FAILED, failure=failure)
        refused = await ask(client, world, "retry", old)
    assert (refused.status_code, refused.json()["code"]) == (409, "fails_again")


@pytest.mark.parametrize("verb", ["retry", "clone"])
async def test_keys_of_jobs_from_jobs_are_of_their_owner(world: AccessWorld, verb: str) -> None:
    job = world.job(state=JobState.FAILED)
    key = {"Idempotency-Key": "k"}
    async with world.client() as client:
        answers = [await ask(client, world, verb, job, who, headers=key) for who in ("ada", "ben", "ada")]
    ids = [answer.json()["job_id"] for answer in answers]
    assert ids[0] == ids[2] != ids[1]
    assert "idempotent-replay" not in answers[1].headers


async def seen(world: AccessWorld, projects: frozenset[str] | None, after: int = 0) -> set[str]:
    items = world.desk.events.follow(after, projects=projects)
    return {item.job_id async for item in items if isinstance(item, JobEvent)}


async def test_events_are_those_of_the_projects_that_one_sees(world: AccessWorld) -> None:
    ours, theirs = world.job(), world.job("eve", "law")
    async with world.client() as client:
        await ask(client, world, "pause", ours)
        for who, expected in (
            ("viewer", {ours.job_id}),
            ("eve", {theirs.job_id}),
            ("root", {ours.job_id, theirs.job_id}),
        ):
            answer = await client.get("/v1/events?after=0", headers=world.bearer(who))
            lines = [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]
            assert {line["job_id"] for line in lines if "job_id" in line} == expected, who
    assert await seen(world, frozenset()) == set()


async def test_what_comes_while_one_follows_is_filtered_too(world: AccessWorld) -> None:
    world.desk.events._stream_seconds = 30
    items = world.desk.events.follow(projects=frozenset({"law"}))
    assert isinstance(await anext(items), Opened)
    world.job()
    theirs = world.job("eve", "law")
    item = await anext(items)
    assert isinstance(item, JobEvent)
    assert (item.job_id, item.project) == (theirs.job_id, "law")
    await items.aclose()


async def test_a_new_role_is_seen_by_the_next_connection(world: AccessWorld) -> None:
    job = world.job("eve", "law")
    async with world.client() as client:
        for role, expected in (("clinical", False), ("law", True)):
            world.keys["walker"] = world.key("walker", role, Role.VIEWER)
            answer = await client.get("/v1/events?after=0", headers=world.bearer("walker"))
            assert (job.job_id in answer.text) is expected


async def test_metrics_take_a_scope_of_their_own(world: AccessWorld) -> None:
    world.keys["scraper"] = world.key("scraper", None, Role.ADMIN, frozenset({Permission.METRICS_READ}))
    world.keys["local"] = world.key("local", "clinical", Role.ADMIN, frozenset({Permission.METRICS_READ}))
    job = world.job()
    async with world.client() as client:
        assert (await client.get("/metrics", headers=world.bearer("scraper"))).status_code == 200
        assert (await client.get("/metrics", headers=world.bearer("local"))).status_code == 403
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get(f"/v1/jobs/{job.job_id}", headers=world.bearer("scraper"))).status_code == 403


async def test_readiness_names_the_parts_and_tells_nobody_where_they_are(world: AccessWorld) -> None:
    error = "Ray at http://ray.inside:8265 does not answer"
    away = ClusterStatus(reconciled_at=world.now, is_ray_reachable=False, ray_error=error)
    world.store.save_cluster_status(away)
    async with world.client() as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, "inside" in answer.text) == (503, False)
    assert [item["pointer"] for item in answer.json()["errors"]] == ["/parts/ray"]
    assert answer.json()["detail"].startswith("Absent: ray.")
