from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from service_doubles import START, make_job

from pipelines.specs.documents import JobResult, Progress
from pipelines.specs.parsing import resolve_spec
from service.interfaces import JobFilter
from service.ledger.store import SqlJobStore
from service.records import ClusterStatus
from service.states import JobState

pytestmark = pytest.mark.anyio

TINY = {"spec": {"kind": "pretrain", "preset": "tiny"}}


async def test_a_job_is_taken_and_shown(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/jobs", json={**TINY, "overrides": ["training.seed=7", "name=mine"]})
    assert answer.status_code == 202
    shown = await client.get(answer.headers["location"])
    job = shown.json()
    assert (job["state"], job["attempt"], job["name"], job["cancel_requested"]) == ("QUEUED", 0, "mine", False)
    assert job["spec"] == resolve_spec(TINY["spec"], ["training.seed=7", "name=mine"]).model_dump(mode="json")
    assert job["links"]["logs"] == f"/v1/jobs/{job['job_id']}/logs"
    assert {key: value for key, value in job.items() if key not in ("spec", "spec_sha256")} == answer.json()


async def test_a_stored_spec_makes_the_same_job_again(client: httpx.AsyncClient) -> None:
    first = (await client.get((await client.post("/v1/jobs", json=TINY)).headers["location"])).json()
    again = await client.post("/v1/jobs", json={"spec": first["spec"]})
    assert (await client.get(again.headers["location"])).json()["spec_sha256"] == first["spec_sha256"]


async def test_one_key_and_body_make_one_job(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = await client.post("/v1/jobs", json=TINY, headers=key)
    again = await client.post("/v1/jobs", json=TINY, headers=key)
    assert "idempotent-replay" not in first.headers
    assert (again.status_code, again.headers["idempotent-replay"]) == (202, "true")
    assert first.json() == again.json()
    assert again.headers["location"] == first.headers["location"]
    other = await client.post("/v1/jobs", json={**TINY, "overrides": ["name=b"]}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert len(store.page(JobFilter())) == 1


async def test_one_key_sent_ten_times_at_once_makes_one_job(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    posts = [client.post("/v1/jobs", json=TINY, headers={"Idempotency-Key": "k"}) for _ in range(10)]
    answers = await asyncio.gather(*posts)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert len(store.page(JobFilter())) == 1


async def test_a_refused_request_leaves_its_key_free(client: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "k"}
    bad = await client.post("/v1/jobs", json={**TINY, "overrides": ["training.seed=-1"]}, headers=key)
    assert bad.status_code == 422
    assert (await client.post("/v1/jobs", json=TINY, headers=key)).status_code == 202


async def test_pages_are_newest_first_and_join(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    ids = [(await client.post("/v1/jobs", json=TINY)).json()["job_id"] for _ in range(5)]
    assert ids == sorted(ids)
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = (await client.get("/v1/jobs", params={"limit": 2, **cursor})).json()
        seen += [job["job_id"] for job in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ids[::-1]


async def test_filters(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    for state in ("RUNNING", "FAILED", "QUEUED"):
        store.insert(make_job(state=JobState(state), name=state.lower()))
    both = await client.get("/v1/jobs", params={"state": ["RUNNING", "FAILED"], "kind": "pretrain"})
    assert {job["state"] for job in both.json()["items"]} == {"RUNNING", "FAILED"}
    named = await client.get("/v1/jobs", params={"name": "queued"})
    assert [job["name"] for job in named.json()["items"]] == ["queued"]


async def test_cancel_is_noted_for_the_reconciler(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    path = (await client.post("/v1/jobs", json=TINY)).headers["location"]
    for _ in range(2):
        answer = await client.post(f"{path}/cancel")
        assert (answer.status_code, answer.json()["cancel_requested"]) == (202, True)
    [job] = store.list_unsettled()
    store.update(job, state=JobState.CANCELLED, finished_at=START)
    over = await client.post(f"{path}/cancel")
    assert (over.status_code, over.json()["code"]) == (409, "job_finished")


async def test_links_lead_to_the_run_and_the_attempt(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    progress = Progress(heartbeat_at=START, mlflow_run_id="r", mlflow_experiment_id="3", tokens_per_second=9.5)
    job = make_job(attempt=2, state=JobState.RUNNING, progress=progress)
    store.insert(job)
    shown = (await client.get(f"/v1/jobs/{job.job_id}")).json()
    assert shown["links"]["mlflow"] == "http://127.0.0.1:5000/#/experiments/3/runs/r"
    assert shown["links"]["ray"] == f"http://127.0.0.1:8265/#/jobs/{job.job_id}-a2"
    assert shown["progress"]["tokens_per_second"] == 9.5


async def test_results_are_shown(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    job = make_job(state=JobState.SUCCEEDED, result=JobResult(state="SUCCEEDED", evaluation={"auc": 0.8}))
    store.insert(job)
    assert (await client.get(f"/v1/jobs/{job.job_id}")).json()["result"]["evaluation"] == {"auc": 0.8}


async def test_a_plan_starts_nothing(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    plan = await client.post("/v1/jobs:plan", json=TINY)
    assert plan.status_code == 200
    assert plan.json()["spec"] == resolve_spec(TINY["spec"]).model_dump(mode="json")
    assert plan.json()["discriminator_parameters"] > 0
    assert store.page(JobFilter()) == []


async def test_a_plan_measures_the_corpus_where_it_can(client: httpx.AsyncClient, tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("text " * 100)
    sources = [{"type": "text", "uris": str(tmp_path / "*.txt")}]
    plan = await client.post("/v1/jobs:plan", json={"spec": {**TINY["spec"], "corpus": {"sources": sources}}})
    assert plan.json()["corpus_bytes"] == 500
    sources[0]["uris"] = "/no/such/file"
    plan = await client.post("/v1/jobs:plan", json={"spec": {**TINY["spec"], "corpus": {"sources": sources}}})
    assert (plan.status_code, plan.json()["corpus_bytes"]) == (200, None)


async def test_presets_are_specs(client: httpx.AsyncClient) -> None:
    presets = (await client.get("/v1/presets")).json()["items"]
    assert [preset["name"] for preset in presets] == ["tiny", "small", "base", "large"]
    for preset in presets:
        assert (await client.get(f"/v1/presets/{preset['name']}")).json() == preset
        resolve_spec(preset["spec"])


async def test_health_and_readiness(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    from datetime import UTC, datetime

    assert (await client.get("/healthz")).json() == {"status": "ok"}
    down = ClusterStatus(reconciled_at=datetime.now(UTC), is_ray_reachable=False, ray_error="away")
    for status, word in [(None, "No replica has made a round yet"), (down, "away")]:
        if status is not None:
            store.save_cluster_status(status)
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert word in answer.json()["detail"]
    for reconciled_at, state in [(START, "absent"), (datetime.now(UTC), "ok")]:
        store.save_cluster_status(ClusterStatus(reconciled_at=reconciled_at, is_ray_reachable=True))
        answer = await client.get("/readyz")
        assert answer.status_code == 200
        assert answer.json()["parts"]["leader"]["state"] == state


@pytest.mark.parametrize(("given", "is_kept"), [("abc-1", True), ("a b", False), ("x" * 101, False), ("", False)])
async def test_request_ids_are_kept_if_sane(client: httpx.AsyncClient, given: str, is_kept: bool) -> None:
    answer = await client.get("/healthz", headers={"X-Request-ID": given})
    assert (answer.headers["x-request-id"] == given) is is_kept
    assert answer.headers["x-request-id"]
