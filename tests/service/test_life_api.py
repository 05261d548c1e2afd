"""Every wish in every state, over HTTP; and new jobs from old ones."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from service_doubles import START, make_job

from service.interfaces import JobFilter
from service.ledger.store import SqlJobStore
from service.records import JobFailure
from service.states import JobState

pytestmark = pytest.mark.anyio

TINY = {"spec": {"kind": "pretrain", "preset": "tiny"}}
OVER = {"SUCCEEDED", "FAILED", "CANCELLED"}
EVERYWHERE = set(JobState)
GRANTED = {
    "cancel": EVERYWHERE - OVER,
    "kill": EVERYWHERE - OVER,
    "pause": EVERYWHERE - OVER - {"CANCELLING"},
    "resume": {"PAUSING", "PAUSED"},
    "archive": OVER,
    "unarchive": EVERYWHERE,
    "retry": {"FAILED", "CANCELLED"},
    "clone": EVERYWHERE,
}
"""States in which a wish is granted; in all others it is refused."""


def put(store: SqlJobStore, state: str, **fields: Any) -> str:
    asked = {"cancel_requested_at": START} if state == "CANCELLING" else {}
    asked |= {"pause_requested_at": START} if state in ("PAUSING", "PAUSED") else {}
    over = {"finished_at": START} if state in OVER else {}
    job = make_job(state=JobState(state), **{**asked, **over, **fields})
    store.insert(job)
    return job.job_id


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("verb", GRANTED)
async def test_every_wish_in_every_state(client: httpx.AsyncClient, store: SqlJobStore, verb: str, state: str) -> None:
    path = f"/v1/jobs/{put(store, state)}/{verb}"
    for _ in range(1 if verb in ("retry", "clone") else 2):  # said again, it gets the same answer
        answer = await client.post(path)
        if state in GRANTED[verb]:
            assert answer.is_success, answer.text
        else:
            problem = answer.json()
            assert (answer.status_code, problem["code"] in ("job_finished", "wrong_state")) == (409, True)
            assert verb in problem["detail"]
            assert state in problem["detail"]
        if (verb, state) in (("resume", "PAUSED"), ("resume", "PAUSING")):
            assert answer.json()["pause_requested"] is False


@pytest.mark.parametrize("verb", [*GRANTED, ""])
async def test_a_job_that_is_not_there(client: httpx.AsyncClient, verb: str) -> None:
    answer = await (client.post(f"/v1/jobs/pt-1/{verb}") if verb else client.patch("/v1/jobs/pt-1", json={}))
    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


async def test_a_cancelled_job_is_neither_paused_nor_resumed(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    for verb in ("pause", "resume"):
        path = f"/v1/jobs/{put(store, 'PAUSED', cancel_requested_at=START)}/{verb}"
        assert (await client.post(path)).json()["code"] == "wrong_state"


async def test_a_kill_is_a_cancellation_too(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    answer = (await client.post(f"/v1/jobs/{put(store, 'RUNNING')}/kill")).json()
    assert (answer["kill_requested"], answer["cancel_requested"]) == (True, True)


async def test_what_is_said_beside_the_spec_is_kept(client: httpx.AsyncClient) -> None:
    said = {
        "priority": -7,
        "labels": {"team": "nlp", "example.org/run.id": ""},
        "notes": "Für später\n",
        "limits": {"running_seconds": 90.5},
    }
    job = (await client.post("/v1/jobs", json={**TINY, **said})).json()
    assert {name: job[name] for name in ("priority", "labels", "notes")} == {k: said[k] for k in said if k != "limits"}
    assert job["limits"] == {"starting_seconds": None, "running_seconds": 90.5, "silence_seconds": None}


BAD: dict[str, dict[str, Any]] = {
    "/priority": {"priority": 101},
    "/labels": {"labels": {"a b": "c"}},
    "/labels/a": {"labels": {"a": 5}},
    "/notes": {"notes": "x" * 4001},
    "/limits/running_seconds": {"limits": {"running_seconds": 0}},
    "/limits/runing_seconds": {"limits": {"runing_seconds": 5}},
}
BAD_LABELS = [{"-a": ""}, {"a": "b-"}, {"a": "b" * 64}, {"A.org/a": ""}, {"/a": ""}, {"a": "é"}, {"a": "b\n"}]
BAD_LABELS += [{f"k{i}": "" for i in range(33)}, {"a" * 64: ""}, {"a/b/c": ""}, {"": ""}]


@pytest.mark.parametrize("pointer", BAD)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_what_breaks_a_rule_is_refused(
    client: httpx.AsyncClient, store: SqlJobStore, pointer: str, method: str
) -> None:
    if method == "PATCH" and pointer.startswith("/limits"):
        pytest.skip("limits stay as they are")
    path, body = ("/v1/jobs", TINY) if method == "POST" else (f"/v1/jobs/{put(store, 'QUEUED')}", {})
    answer = await client.request(method, path, json={**body, **BAD[pointer]})
    assert (answer.status_code, [item["pointer"] for item in answer.json()["errors"]]) == (422, [pointer])


@pytest.mark.parametrize("labels", BAD_LABELS, ids=repr)
async def test_labels_have_the_syntax_of_kubernetes(client: httpx.AsyncClient, labels: dict[str, str]) -> None:
    assert (await client.post("/v1/jobs", json={**TINY, "labels": labels})).status_code == 422


async def test_notes_hold_no_nul(client: httpx.AsyncClient) -> None:
    """PostgreSQL cannot store it."""
    assert (await client.post("/v1/jobs", json={**TINY, "notes": "a\x00b"})).status_code == 422


async def test_an_edit_changes_what_it_names_and_null_clears(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    path = f"/v1/jobs/{put(store, 'FAILED', priority=3, labels={'a': '1'}, notes='n')}"
    told = (await client.patch(path, json={})).json()
    assert (told["priority"], told["labels"], told["notes"]) == (3, {"a": "1"}, "n")
    told = (await client.patch(path, json={"labels": {"b": "2"}, "priority": -4})).json()
    assert (told["priority"], told["labels"], told["notes"]) == (-4, {"b": "2"}, "n")
    told = (await client.patch(path, json={"labels": None, "priority": None, "notes": ""})).json()
    assert (told["priority"], told["labels"], told["notes"]) == (0, {}, "")


async def test_lists_are_found_by_labels_and_leave_out_the_archive(
    client: httpx.AsyncClient, store: SqlJobStore
) -> None:
    both = put(store, "FAILED", labels={"team": "nlp", "run": "1"})
    put(store, "FAILED", labels={"team": "nlp", "run": "2"})

    async def found(**query: Any) -> list[str]:
        return [job["job_id"] for job in (await client.get("/v1/jobs", params=query)).json()["items"]]

    assert await found(label=["team=nlp", "run=1"]) == [both]
    assert len(await found(label="team=nlp")) == 2
    await client.post(f"/v1/jobs/{both}/archive")
    assert both not in await found()
    assert await found(archived=True) == [both]
    await client.post(f"/v1/jobs/{both}/unarchive")
    assert both in await found()
    assert (await client.get("/v1/jobs", params={"label": "a"})).status_code == 422


async def test_a_retry_is_a_new_job_that_names_the_old_one(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    old = put(store, "FAILED", labels={"a": "1"}, priority=5, notes="first")
    answer = await client.post(f"/v1/jobs/{old}/retry", json={"notes": "second"})
    made = (await client.get(answer.headers["location"])).json()
    assert (made["state"], made["retry_of"], made["goes_on_with"], made["clone_of"]) == (
        "QUEUED",
        old,
        "checkpoint",
        None,
    )
    assert (made["labels"], made["priority"], made["notes"]) == ({"a": "1"}, 5, "second")
    assert made["spec_sha256"] == (await client.get(f"/v1/jobs/{old}")).json()["spec_sha256"]


async def test_a_clone_starts_from_the_spec_with_overrides(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    old = put(store, "RUNNING")
    answer = await client.post(f"/v1/jobs/{old}/clone", json={"overrides": ["training.seed=77"]})
    made = (await client.get(answer.headers["location"])).json()
    assert (made["spec"]["training"]["seed"], made["clone_of"], made["retry_of"]) == (77, old, None)
    bad = await client.post(f"/v1/jobs/{old}/clone", json={"overrides": ["training.seed=x"]})
    assert (bad.json()["code"], bad.json()["errors"][0]["pointer"]) == ("invalid_spec", "/overrides/0")


@pytest.mark.parametrize("code", ["out_of_memory", "non_finite_loss"])
async def test_what_would_fail_again_is_retried_only_changed(
    client: httpx.AsyncClient, store: SqlJobStore, code: str
) -> None:
    old = put(store, "FAILED", failure=JobFailure(code=code, message="m", attempt=1))
    refused = await client.post(f"/v1/jobs/{old}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "fails_again")
    changed = await client.post(f"/v1/jobs/{old}/retry", json={"overrides": ["training.gradient_accumulation_steps=2"]})
    assert changed.status_code == 202


@pytest.mark.parametrize("verb", ["retry", "clone"])
async def test_one_key_makes_one_new_job(client: httpx.AsyncClient, store: SqlJobStore, verb: str) -> None:
    path, key = f"/v1/jobs/{put(store, 'FAILED')}/{verb}", {"Idempotency-Key": "k"}
    first, again = [await client.post(path, headers=key) for _ in range(2)]
    assert (again.headers["idempotent-replay"], again.json()) == ("true", first.json())
    other = await client.post(path, headers=key, json={"priority": 1})
    assert other.json()["code"] == "idempotency_conflict"
    assert len(store.page(JobFilter())) == 2


async def test_a_failure_tells_one_of_a_closed_list_of_reasons(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    job_id = put(store, "FAILED", failure=JobFailure(code="rejected", message="m", attempt=1))
    assert (await client.get(f"/v1/jobs/{job_id}")).json()["failure"]["reason"] == "submission"
    document = (await client.get("/openapi.json")).json()["components"]["schemas"]["FailureReason"]
    assert set(document["enum"]) == {
        "submission",
        "out_of_memory",
        "data",
        "non_finite_loss",
        "deadline",
        "lost",
        "internal",
    }
