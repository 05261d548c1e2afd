"""What is looked up when a job is taken, and what a retry and a clone make of it, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_shelf import MemoryRegistry, folder_of, keep_corpus

from service.ledger.store import SqlJobStore
from service.settings import Settings
from service.states import JobState

pytestmark = pytest.mark.anyio


def finetuning(tmp_path: Path, **model: Any) -> dict[str, Any]:
    for name in ("train.csv", "validation.csv"):
        (tmp_path / name).write_text("text,label\na,b\n")
    data = {"train": str(tmp_path / "train.csv"), "validation": str(tmp_path / "validation.csv")}
    task = {"type": "classification", "data": data}
    return {
        "kind": "finetune",
        "name": "tones",
        "model": {"type": "registered", "name": "news", **model},
        "task": task,
    }


async def sent(client: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 202, answer.text
    return dict((await client.get(answer.headers["location"])).json())


def fail(store: SqlJobStore, job_id: str) -> None:
    job = store.get(job_id)
    assert job is not None
    store.update(store.update(job, state=JobState.STARTING, attempt=1), state=JobState.FAILED)


def model_of(job: dict[str, Any]) -> tuple[int | None, str | None]:
    return job["spec"]["model"]["version"], job["spec"]["model"]["alias"]


@pytest.mark.parametrize("model", [{}, {"alias": "newest"}], ids=str)
async def test_an_alias_is_a_version_from_when_the_job_is_taken(
    client: httpx.AsyncClient, store: SqlJobStore, registry: MemoryRegistry, tmp_path: Path, model: dict[str, str]
) -> None:
    """And stays it in a retry, while a clone looks it up anew."""
    registry.add("news", 4, {"newest": 4})
    job = await sent(client, "/v1/jobs", spec=finetuning(tmp_path, **model))
    assert (model_of(job), job["resolved_aliases"]) == ((4, None), {"/model": "newest"})
    registry.add("news", 5, {"newest": 5})
    fail(store, job["job_id"])
    retried = await sent(client, f"/v1/jobs/{job['job_id']}/retry")
    assert (model_of(retried), retried["resolved_aliases"]) == ((4, None), {"/model": "newest"})
    assert retried["spec_sha256"] == job["spec_sha256"]
    cloned = await sent(client, f"/v1/jobs/{retried['job_id']}/clone")
    assert (model_of(cloned), cloned["resolved_aliases"]) == ((5, None), {"/model": "newest"})


async def test_a_retry_that_names_another_alias_looks_that_up(
    client: httpx.AsyncClient, store: SqlJobStore, registry: MemoryRegistry, tmp_path: Path
) -> None:
    registry.add("news", 4, {"newest": 4, "best": 4})
    job = await sent(client, "/v1/jobs", spec=finetuning(tmp_path, alias="newest"))
    registry.add("news", 5, {"newest": 5, "best": 5})
    fail(store, job["job_id"])
    retried = await sent(client, f"/v1/jobs/{job['job_id']}/retry", overrides=["model.alias=best"])
    assert (model_of(retried), retried["resolved_aliases"]) == ((5, None), {"/model": "best"})


@pytest.mark.parametrize("is_away", [True, False])
async def test_an_alias_that_cannot_be_looked_up_is_left_to_the_job_and_so_to_its_retry(
    client: httpx.AsyncClient, store: SqlJobStore, registry: MemoryRegistry, tmp_path: Path, is_away: bool
) -> None:
    """The job kept a copy of what it found, which the retry takes as long as its spec says the same."""
    registry.is_away = is_away
    job = await sent(client, "/v1/jobs", spec=finetuning(tmp_path, alias="newest"))
    assert (model_of(job), job["resolved_aliases"]) == ((None, "newest"), {})
    registry.is_away = False
    registry.add("news", 5, {"newest": 5})
    fail(store, job["job_id"])
    assert model_of(await sent(client, f"/v1/jobs/{job['job_id']}/retry")) == (None, "newest")
    assert model_of(await sent(client, f"/v1/jobs/{job['job_id']}/clone")) == (5, None)


async def test_a_retry_needs_no_source_whose_corpus_is_prepared(
    client: httpx.AsyncClient, store: SqlJobStore, settings: Settings, tmp_path: Path
) -> None:
    source = tmp_path / "a.txt"
    source.write_text("words")
    corpus = {"sources": [{"type": "text", "uris": [str(source)]}]}
    job = await sent(client, "/v1/jobs", spec={"kind": "pretrain", "preset": "tiny", "corpus": corpus})
    fail(store, job["job_id"])
    source.unlink()
    path = f"/v1/jobs/{job['job_id']}"
    assert (await client.post(f"{path}/retry")).json()["code"] == "corpus_unreadable"
    pin = {"words": "", "texts": "", "tokenizer": "", "corpus": keep_corpus(settings, job["job_id"])}
    (folder_of(settings, "jobs", job["job_id"]) / "corpus.json").write_text(json.dumps(pin))
    retried = await sent(client, f"{path}/retry")
    assert (await client.post(f"{path}/clone")).json()["code"] == "corpus_unreadable"
    other = ["corpus.validation_fraction=0.2"]
    assert (await client.post(f"{path}/retry", json={"overrides": other})).json()["code"] == "corpus_unreadable"
    fail(store, retried["job_id"])
    assert (await client.post(f"/v1/jobs/{retried['job_id']}/retry")).status_code == 202


async def test_a_retry_needs_no_model_file_that_the_old_job_copied(
    client: httpx.AsyncClient, store: SqlJobStore, settings: Settings, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"1")
    spec = {**finetuning(tmp_path), "model": {"type": "files", "uri": str(weights)}}
    job = await sent(client, "/v1/jobs", spec=spec)
    fail(store, job["job_id"])
    (weights / "model.safetensors").unlink()
    weights.rmdir()
    path = f"/v1/jobs/{job['job_id']}/retry"
    assert (await client.post(path)).json()["code"] == "corpus_unreadable"
    (folder_of(settings, "jobs", job["job_id"], "base") / "manifest.json").write_text("{}")
    assert (await client.post(path)).status_code == 202


async def test_what_was_looked_up_is_in_lists_too(
    client: httpx.AsyncClient, registry: MemoryRegistry, tmp_path: Path
) -> None:
    registry.add("news", 4, {"best": 4})
    await sent(client, "/v1/jobs", spec=finetuning(tmp_path, alias="best"))
    assert (await client.get("/v1/jobs")).json()["items"][0]["resolved_aliases"] == {"/model": "best"}
