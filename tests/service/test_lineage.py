"""From a version back to what it was made of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from access_world import AccessWorld, keys_settings
from service_doubles import START, MemoryFolders, make_job
from service_shelf import DIGEST, MemoryRegistry, folder_of, keep_corpus, made_by

from pipelines.specs.parsing import dump_spec, resolve_spec
from service.ledger.store import SqlJobStore
from service.settings import Settings
from service.states import JobState

pytestmark = pytest.mark.anyio

SOURCES = [{"type": "text", "words": {"uris": ["/data"]}, "num_files": 2, "size_bytes": 9, "files_sha256": "0" * 64}]


def finetuned(job_name: str, **model: Any) -> str:
    task = {"type": "classification", "data": {"train": "/data/train.csv"}}
    return dump_spec(resolve_spec({"kind": "finetune", "name": job_name, "model": model, "task": task}))


@pytest.fixture
def made(settings: Settings, store: SqlJobStore, folders: MemoryFolders, registry: MemoryRegistry) -> str:
    """`base` version 1 by a pretraining job, and `tuned` version 1 by a finetuning job that started from it."""
    job = make_job()
    store.insert(job)
    running = store.update(
        store.update(job, state=JobState.STARTING, attempt=1), state=JobState.RUNNING, started_at=START
    )
    corpus = {"digest": DIGEST, "uri": "s3://elsewhere", "num_train_tokens": 50}
    result = made_by(settings, job.job_id, "base", 1, corpus=corpus)
    store.update(running, state=JobState.SUCCEEDED, finished_at=START, result=result)
    keep_corpus(settings, job.job_id)
    (folder_of(settings, "corpora", DIGEST) / "sources.json").write_text(json.dumps({"sources": SOURCES}))
    tuned = make_job(kind="finetune", spec_json=finetuned("tuned", type="registered", name="base"))
    store.insert(tuned)
    base = folder_of(settings, "jobs", tuned.job_id, "base")
    (base / "manifest.json").write_text(json.dumps({"origin": "base version 1"}))
    registry.add("base", tags={"electra.job_id": job.job_id, "electra.network": "discriminator"}, run_id="r")
    registry.add("tuned", tags={"electra.job_id": tuned.job_id})
    return job.job_id


async def test_a_finetuned_version_leads_to_the_sources_of_its_base(client: httpx.AsyncClient, made: str) -> None:
    tuned = (await client.get("/v1/models/tuned/versions/1/lineage")).json()
    (parent,) = tuned["parents"]
    assert (parent["field"], parent["name"], parent["version"]) == ("/model", "base", 1)
    base = parent["lineage"]
    assert (base["mlflow_run_id"], base["network"], base["job"]["job_id"]) == ("r", "discriminator", made)
    assert [attempt["attempt"] for attempt in base["job"]["attempts"]] == [1]
    assert (base["corpus"]["digest"], base["corpus"]["is_stored"]) == (DIGEST, True)
    assert base["corpus"]["sources"] == SOURCES
    assert base["corpus"]["figures"] == {"num_train_tokens": 50}


async def test_a_deleted_corpus_is_still_told_by_its_sources(
    client: httpx.AsyncClient, settings: Settings, made: str
) -> None:
    Path(settings.storage_uri, "corpora", DIGEST, "manifest.json").unlink()
    corpus = (await client.get("/v1/models/base/versions/1/lineage")).json()["corpus"]
    assert (corpus["is_stored"], corpus["sources"]) == (False, SOURCES)


async def test_a_corpus_of_before_is_told_by_the_spec(client: httpx.AsyncClient, settings: Settings, made: str) -> None:
    Path(settings.storage_uri, "corpora", DIGEST, "sources.json").unlink()
    (source,) = (await client.get("/v1/models/base/versions/1/lineage")).json()["corpus"]["sources"]
    assert (source["type"], "num_files" in source) == ("python_docs", False)


async def test_a_version_that_no_job_made_has_none(client: httpx.AsyncClient, registry: MemoryRegistry) -> None:
    registry.add("m", tags={"electra.job_id": "pt-nowhere"})
    found = (await client.get("/v1/models/m/versions/1/lineage")).json()
    assert (found["job"], found["corpus"], found["parents"]) == (None, None, [])


async def test_a_model_that_was_made_from_files_says_which(
    client: httpx.AsyncClient, store: SqlJobStore, registry: MemoryRegistry
) -> None:
    job = make_job(kind="finetune", spec_json=finetuned("n", type="files", uri="/models/electra"))
    store.insert(job)
    registry.add("m", tags={"electra.job_id": job.job_id})
    (parent,) = (await client.get("/v1/models/m/versions/1/lineage")).json()["parents"]
    assert (parent["field"], parent["uri"]) == ("/model/uri", "/models/electra")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AccessWorld]:
    world = AccessWorld(keys_settings(tmp_path))
    yield world
    world.close()


@pytest.fixture
async def keyed(world: AccessWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client() as client:
        yield client


async def test_a_tag_leads_to_no_job_of_another_project(keyed: httpx.AsyncClient, world: AccessWorld) -> None:
    """Whoever may write to MLflow can put any job's id on a version."""
    hidden = world.job("eve", "law")
    world.folders.results[hidden.job_id] = made_by(world.settings, hidden.job_id, "clinical--m", 1)
    world.registry.add("clinical--m", tags={"electra.job_id": hidden.job_id})
    found = await keyed.get("/v1/models/clinical--m/versions/1/lineage", headers=world.bearer("ada"))
    assert (found.status_code, found.json()["job"]) == (200, None)
    export = await keyed.get("/v1/models/clinical--m/versions/1/export", headers=world.bearer("ada"))
    assert (export.status_code, export.json()["code"]) == (404, "export_not_found")


async def test_of_a_parent_in_a_hidden_project_the_name_alone_is_told(
    keyed: httpx.AsyncClient, world: AccessWorld
) -> None:
    world.registry.add("law--base")
    job = world.job(kind="finetune", spec_json=finetuned("n", type="registered", name="law--base"))
    base = folder_of(world.settings, "jobs", job.job_id, "base")
    (base / "manifest.json").write_text(json.dumps({"origin": "law--base version 1"}))
    world.registry.add("clinical--m", tags={"electra.job_id": job.job_id})
    found = await keyed.get("/v1/models/clinical--m/versions/1/lineage", headers=world.bearer("ada"))
    (parent,) = found.json()["parents"]
    assert (parent["name"], parent["version"], parent["lineage"]) == ("law--base", None, None)


async def test_models_of_hidden_projects_are_in_no_list(keyed: httpx.AsyncClient, world: AccessWorld) -> None:
    for name in ("clinical--m", "law--m", "m", "clinical-x", "clinical"):
        world.registry.add(name)
    for who, expected in (("ada", ["clinical--m"]), ("eve", ["law--m"])):
        page = (await keyed.get("/v1/models", headers=world.bearer(who))).json()
        assert [item["name"] for item in page["items"]] == expected
    for project in ("law", "nowhere"):
        page = (await keyed.get(f"/v1/models?project={project}", headers=world.bearer("ada"))).json()
        assert page == {"items": [], "next_cursor": None}
