"""Every route for every principal: the table is made of the application's routes, so that none can be forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from access_world import ROOT, TINY, AccessWorld, keys_settings
from fastapi.routing import APIRoute
from service_shelf import export_files, keep_corpus, made_by

from service.app import create_app
from service.http.rules import PUBLIC_PATHS, RULES, On
from service.queueing.records import Quota
from service.records import Job
from service.settings import Settings
from service.states import JobState

pytestmark = pytest.mark.anyio

WHO = ("nobody", "viewer", "ada", "ben", "admin", "eve", "root")
"""Nobody; of the job's project a viewer, its owner, another member and an administrator; an administrator of another
project; and of all."""
BODIES: dict[str, Any] = {
    "/v1/jobs": {**TINY, "project": "clinical"},
    "/v1/jobs:plan": {**TINY, "project": "clinical"},
    "/v1/models/{name}/{alias}:predict": {"inputs": [{"text": "a"}]},
    "/v1/keys": {"name": "k", "owner": "x", "project": "clinical"},
    "/v1/projects": {"name": "other"},
    "/v1/webhooks": {"url": "https://hooks.test/x", "project": "clinical"},
    "/v1/quotas/{scope}/{name}": {"max_cpus": 4},
    "/v1/jobs/{job_id}": {"notes": "n"},
    "/v1/jobs/{job_id}/retry": {},
    "/v1/jobs/{job_id}/clone": {},
    "/v1/models/{name}/aliases/{alias}": {"version": 1},
    "/v1/clean": {},
}
JOBS: dict[str, dict[str, Any]] = {
    "/v1/jobs/{job_id}/resume": {"pause_requested_at": datetime.now(UTC)},
    "/v1/jobs/{job_id}/archive": {"state": JobState.CANCELLED},
    "/v1/jobs/{job_id}/unarchive": {"state": JobState.CANCELLED, "is_archived": True},
    "/v1/jobs/{job_id}/retry": {"state": JobState.CANCELLED},
}
"""What the job must be where it is no queued search."""
EXPECTED = {
    #                                             nobody viewer ada  ben  admin eve  root
    ("GET", "/healthz"):                           (200, 200, 200, 200, 200, 200, 200),
    ("GET", "/readyz"):                            (200, 200, 200, 200, 200, 200, 200),
    ("GET", "/"):                                  (307, 307, 307, 307, 307, 307, 307),
    ("GET", "/ui"):                                (307, 307, 307, 307, 307, 307, 307),
    ("GET", "/ui/"):                               (200, 200, 200, 200, 200, 200, 200),
    ("GET", "/ui/{version}/{name}"):               (200, 200, 200, 200, 200, 200, 200),
    ("GET", "/metrics"):                           (401, 403, 403, 403, 403, 403, 200),
    ("GET", "/v1/presets"):                        (401, 200, 200, 200, 200, 200, 200),
    ("GET", "/v1/presets/{name}"):                 (401, 200, 200, 200, 200, 200, 200),
    ("GET", "/v1/me"):                             (401, 200, 200, 200, 200, 200, 200),
    ("GET", "/v1/jobs"):                           (401, 200, 200, 200, 200, 200, 200),
    ("POST", "/v1/jobs"):                          (401, 403, 202, 202, 202, 404, 202),
    ("POST", "/v1/jobs:plan"):                     (401, 403, 200, 200, 200, 404, 200),
    ("GET", "/v1/jobs/{job_id}"):                  (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/jobs/{job_id}/logs"):             (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/jobs/{job_id}/logs/sources"):     (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/events"):                         (401, 200, 200, 200, 200, 200, 200),
    ("GET", "/v1/jobs/{job_id}/events"):           (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/jobs/{job_id}/trials"):           (401, 200, 200, 200, 200, 404, 200),
    ("POST", "/v1/jobs/{job_id}/cancel"):          (401, 403, 202, 403, 202, 404, 202),
    ("PATCH", "/v1/jobs/{job_id}"):                (401, 403, 200, 403, 200, 404, 200),
    ("POST", "/v1/jobs/{job_id}/kill"):            (401, 403, 202, 403, 202, 404, 202),
    ("POST", "/v1/jobs/{job_id}/pause"):           (401, 403, 202, 403, 202, 404, 202),
    ("POST", "/v1/jobs/{job_id}/resume"):          (401, 403, 202, 403, 202, 404, 202),
    ("POST", "/v1/jobs/{job_id}/archive"):         (401, 403, 200, 403, 200, 404, 200),
    ("POST", "/v1/jobs/{job_id}/unarchive"):       (401, 403, 200, 403, 200, 404, 200),
    ("POST", "/v1/jobs/{job_id}/retry"):           (401, 403, 202, 202, 202, 404, 202),
    ("POST", "/v1/jobs/{job_id}/clone"):           (401, 403, 202, 202, 202, 404, 202),
    ("POST", "/v1/models/{name}/{alias}:predict"): (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/models"):                         (401, 200, 200, 200, 200, 200, 200),
    ("GET", "/v1/models/{name}"):                  (401, 200, 200, 200, 200, 404, 200),
    ("PUT", "/v1/models/{name}/aliases/{alias}"):  (401, 403, 200, 200, 200, 404, 200),
    ("DELETE", "/v1/models/{name}/aliases/{alias}"): (401, 403, 200, 200, 200, 404, 200),
    ("GET", "/v1/models/{name}/versions"):         (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/models/{name}/versions/{version}"): (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/models/{name}/versions/{version}/lineage"): (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/models/{name}/versions/{version}/export"): (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/corpora"):                        (401, 200, 200, 200, 200, 200, 200),
    ("GET", "/v1/corpora/{digest}"):               (401, 200, 200, 200, 200, 404, 200),
    ("GET", "/v1/usage"):                          (401, 200, 200, 200, 200, 200, 200),
    ("POST", "/v1/clean"):                         (401, 403, 403, 403, 403, 403, 200),
    ("GET", "/v1/projects"):                       (401, 200, 200, 200, 200, 200, 200),
    ("POST", "/v1/projects"):                      (401, 403, 403, 403, 403, 403, 201),
    ("GET", "/v1/keys"):                           (401, 403, 403, 403, 200, 200, 200),
    ("POST", "/v1/keys"):                          (401, 403, 403, 403, 201, 404, 201),
    ("POST", "/v1/keys/{key_id}/revoke"):          (401, 404, 404, 404, 200, 404, 200),
    ("GET", "/v1/queue"):                          (401, 200, 200, 200, 200, 200, 200),
    ("GET", "/v1/quotas"):                         (401, 403, 403, 403, 403, 403, 200),
    ("PUT", "/v1/quotas/{scope}/{name}"):          (401, 403, 403, 403, 403, 403, 200),
    ("GET", "/v1/quotas/{scope}/{name}"):          (401, 403, 403, 403, 403, 403, 200),
    ("DELETE", "/v1/quotas/{scope}/{name}"):       (401, 403, 403, 403, 403, 403, 204),
    ("GET", "/v1/audit"):                          (401, 403, 403, 403, 200, 200, 200),
    ("GET", "/v1/webhooks"):                       (401, 403, 403, 403, 200, 200, 200),
    ("POST", "/v1/webhooks"):                      (401, 403, 403, 403, 201, 404, 201),
    ("GET", "/v1/webhooks/{webhook_id}"):          (401, 403, 403, 403, 200, 404, 200),
    ("DELETE", "/v1/webhooks/{webhook_id}"):       (401, 403, 403, 403, 204, 404, 204),
    ("POST", "/v1/webhooks/{webhook_id}/enable"):  (401, 403, 403, 403, 200, 404, 200),
    ("POST", "/v1/webhooks/{webhook_id}/test"):    (401, 403, 403, 403, 202, 404, 202),
    ("GET", "/v1/webhooks/{webhook_id}/deliveries"): (401, 403, 403, 403, 200, 404, 200),
    ("POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver"): (401, 403, 403, 403, 202, 404, 202),
}  # fmt: skip
"""What a route of project `clinical`, and of Ada's job where there is one, answers to each."""


OF_A_JOB = (On.JOB, On.JOB_OF_ANYBODY)


def routes() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def look_into(routes: Any, prefix: str) -> None:
        for route in routes:
            if hasattr(route, "original_router"):  # FastAPI's own, of `include_router`
                look_into(route.original_router.routes, prefix + route.include_context.prefix)
            elif isinstance(route, APIRoute):
                found.extend((method, prefix + route.path) for method in route.methods)
            else:  # mounted applications and plain routes pass `authorise` by
                assert getattr(route, "path", None) in PUBLIC_PATHS, f"{route} has no rule: include a router instead"

    look_into(create_app(Settings()).routes, "")
    assert found, "FastAPI keeps its routes elsewhere now: this test must look there"
    return sorted(found)


def keep_model(world: AccessWorld, job: Job) -> None:
    """Version 1 of `clinical--m`, made by the job, with its export and its alias."""
    world.registry.forget("clinical--m")
    world.registry.add("clinical--m", aliases={"newest": 1}, tags={"electra.job_id": job.job_id})
    world.folders.results[job.job_id] = made_by(world.settings, job.job_id, "clinical--m", 1)
    export_files(world.settings, job.job_id)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessWorld]:
    world = AccessWorld(
        keys_settings(
            tmp_path_factory.mktemp("rules"),
            failed_logins_per_minute=100_000,
            event_stream_seconds=0.05,  # streams that end by themselves
            webhook_key="k" * 32,
            webhook_hosts=("hooks.test",),
        )
    )
    yield world
    world.close()


@pytest.fixture(scope="module")
async def client(world: AccessWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client() as client:
        yield client


def test_every_route_has_a_rule_and_a_row() -> None:
    """A new route must say who may use it, in `service/http/rules.py` and here."""
    assert set(routes()) == set(RULES)
    assert set(routes()) == set(EXPECTED)


def test_what_is_public_is_public_in_both_tables() -> None:
    for (_, path), rule in RULES.items():
        assert (rule.on is On.NOTHING) == (path in PUBLIC_PATHS)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(("method", "path"), sorted(EXPECTED))
async def test_route(world: AccessWorld, client: httpx.AsyncClient, method: str, path: str, who: str) -> None:
    job = world.job(**JOBS.get(path, {"kind": "search"}))
    victim = world.key("someone", "clinical", world.desk.access.store.list_keys(None, 1)[0].role)
    keep_model(world, job)
    hook = world.failed_delivery() if "webhook_id" in path else {}
    world.desk.queue.set_quota("owner", "clinical--m", Quota(), ROOT)
    names = {
        "name": "clinical--m",
        "alias": "newest",
        "scope": "owners",
        "version": "0a" if path.startswith("/ui") else "1",
    }
    names |= {"job_id": job.job_id, "key_id": victim.split("_")[1], "digest": keep_corpus(world.settings, job.job_id)}
    url = path.format(**names, **hook)
    url = url.replace("clinical--m", "tiny") if "presets" in path else url
    url = url.replace("clinical--m", "main.js") if path.startswith("/ui") else url
    body = BODIES.get(path) if method in ("POST", "PATCH", "PUT") else None
    headers = world.bearer(None if who == "nobody" else who)
    answer = await client.request(method, url, json=body, headers=headers)
    assert answer.status_code == EXPECTED[method, path][WHO.index(who)], answer.text
    if answer.status_code == 403:
        assert answer.json()["code"] == "permission_denied"
        assert any(word in answer.json()["detail"] for word in ("jobs:write", "models:write", "metrics:read", "admin"))


@pytest.mark.parametrize(("method", "path"), [key for key, rule in sorted(RULES.items()) if rule.on in OF_A_JOB])
async def test_a_hidden_job_is_answered_as_one_that_is_not_there(
    world: AccessWorld, client: httpx.AsyncClient, method: str, path: str
) -> None:
    hidden = world.job(**JOBS.get(path, {}))
    answers = []
    for job_id in (hidden.job_id, hidden.job_id[:-1] + ("0" if hidden.job_id[-1] != "0" else "1")):
        url = path.format(job_id=job_id) + "?attempt=0"
        headers = {**world.bearer("eve"), "X-Request-ID": "same"}
        answer = await client.request(method, url, json=BODIES.get(path), headers=headers)
        answers.append((answer.status_code, sorted(answer.headers), answer.text.replace(job_id, "JOB")))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


async def test_a_route_without_a_rule_serves_nobody(world: AccessWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.http.authorisation.RULES", {})
    async with world.client() as client:
        answer = await client.get("/v1/jobs", headers=world.bearer("root"))
        assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")


async def test_lists_show_the_projects_that_one_sees(world: AccessWorld, client: httpx.AsyncClient) -> None:
    ours, theirs = world.job(), world.job("eve", "law")
    for who, expected in (("viewer", {ours.job_id}), ("eve", {theirs.job_id}), ("root", {ours.job_id, theirs.job_id})):
        items = (await client.get("/v1/jobs", headers=world.bearer(who))).json()["items"]
        assert {item["job_id"] for item in items} & {ours.job_id, theirs.job_id} == expected
    hidden = await client.get("/v1/jobs?project=law", headers=world.bearer("ada"))
    absent = await client.get("/v1/jobs?project=nowhere", headers=world.bearer("ada"))
    assert hidden.json() == absent.json() == {"items": [], "next_cursor": None}
    mine = await client.get("/v1/jobs?owner=ada", headers=world.bearer("root"))
    assert {item["owner"] for item in mine.json()["items"]} == {"ada"}


async def test_scopes_narrow_what_a_role_allows(world: AccessWorld, client: httpx.AsyncClient) -> None:
    from service.access.principals import Permission, Role

    world.keys["narrow"] = world.key("ada", "clinical", Role.ADMIN, frozenset({Permission.JOBS_READ}))
    job = world.job()
    assert (await client.get(f"/v1/jobs/{job.job_id}", headers=world.bearer("narrow"))).status_code == 200
    refused = await client.post(f"/v1/jobs/{job.job_id}/cancel", headers=world.bearer("narrow"))
    assert (refused.status_code, "jobs:write" in refused.json()["detail"]) == (403, True)


async def test_a_key_cannot_make_a_greater_one(world: AccessWorld, client: httpx.AsyncClient) -> None:
    from service.access.principals import Permission, Role

    world.keys["narrow"] = world.key("abel", "clinical", Role.ADMIN, frozenset({Permission.ADMIN}))
    body = {"name": "k", "owner": "x", "project": "clinical"}
    for who, changes in (("admin", {"project": None}), ("narrow", {}), ("narrow", {"scopes": ["jobs:read"]})):
        answer = await client.post("/v1/keys", json={**body, **changes}, headers=world.bearer(who))
        assert answer.status_code == 403, answer.text


async def test_jobs_belong_to_whom_the_key_names(world: AccessWorld, client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/jobs", json=TINY, headers=world.bearer("ada"))).json()
    assert (made["project"], made["owner"]) == ("clinical", "ada")
    spec = (await client.get(made["links"]["self"], headers=world.bearer("viewer"))).json()["spec"]
    assert spec["record"]["model_name"] == f"clinical--{spec['name']}"


async def test_nobody_replays_anothers_idempotency_key(world: AccessWorld, client: httpx.AsyncClient) -> None:
    ids = {
        who: (await client.post("/v1/jobs", json=TINY, headers={**world.bearer(who), "Idempotency-Key": "k"})).json()[
            "job_id"
        ]
        for who in ("ada", "ben", "eve")
    }
    assert len(set(ids.values())) == 3
    again = await client.post("/v1/jobs", json=TINY, headers={**world.bearer("ada"), "Idempotency-Key": "k"})
    assert (again.json()["job_id"], again.headers["idempotent-replay"]) == (ids["ada"], "true")
