"""What a cleaning deletes, what it keeps and why, and what it does when a job comes in between."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_doubles import MemoryFolders, make_job
from service_shelf import DIGEST, MemoryRegistry, export_files, folder_of, keep_corpus, made_by

from pipelines import storage
from pipelines.specs.documents import JobResult
from pipelines.specs.parsing import dump_spec, resolve_spec
from pipelines.storage.lease import lease
from pipelines.storage.uses import note_use
from service.interfaces import JobFilter
from service.ledger.locks import SqlLocks
from service.ledger.store import SqlJobStore
from service.records import Job
from service.settings import Settings
from service.shelf.withdrawing import StillNeededError, withdraw
from service.states import JobState

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=100)
DONE = {"state": JobState.SUCCEEDED, "attempt": 1, "started_at": OLD, "finished_at": OLD, "is_log_saved": True}
ONLY_CORPORA = {"dry_run": False, "unused_corpora_days": 30, "checkpoints_to_keep": None}


@dataclass
class Shelf:
    settings: Settings
    store: SqlJobStore
    folders: MemoryFolders
    client: httpx.AsyncClient
    registry: MemoryRegistry

    def job(self, **changes: Any) -> Job:
        job = make_job(**changes)
        self.store.insert(job)
        return job

    def path(self, *parts: str) -> Path:
        return Path(self.settings.storage_uri, *parts)

    def corpus(self, *job_ids: str, digest: str = DIGEST, at: datetime = OLD) -> Path:
        """A corpus whose files are all from then."""
        keep_corpus(self.settings, *job_ids, digest=digest)
        age(self.path("corpora", digest), at)
        return self.path("corpora", digest, "manifest.json")

    def checkpoints(self, job: Job, *steps: int, unfinished: int | None = None) -> Callable[[], list[int]]:
        for step in (*steps, *([unfinished] if unfinished else [])):
            folder = folder_of(self.settings, "jobs", job.job_id, "checkpoints", f"step_{step:08d}")
            (folder / "state.pt").write_bytes(b"1" * 10)
            if step != unfinished:
                (folder / "manifest.json").write_text("{}")
        place = self.path("jobs", job.job_id, "checkpoints")
        return lambda: sorted(int(one.name.removeprefix("step_")) for one in place.iterdir())

    async def clean(self, **wish: Any) -> dict[str, Any]:
        answer = await self.client.post("/v1/clean", json=wish)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def reason(self, **wish: Any) -> str:
        """Why the one thing there is stays."""
        (item,) = (await self.clean(**wish))["items"]
        assert item["outcome"] == "kept"
        return str(item["reason"])


def age(folder: Path, at: datetime) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (at.timestamp(), at.timestamp()))


@pytest.fixture
def shelf(
    settings: Settings,
    store: SqlJobStore,
    folders: MemoryFolders,
    client: httpx.AsyncClient,
    registry: MemoryRegistry,
) -> Shelf:
    return Shelf(settings, store, folders, client, registry)


# ── corpora ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_dry_run_says_what_would_go_and_deletes_nothing(shelf: Shelf) -> None:
    manifest = shelf.corpus(shelf.job(**DONE).job_id)
    found = await shelf.clean()
    assert [(item["kind"], item["outcome"]) for item in found["items"]] == [("corpus", "would_delete")]
    assert (found["dry_run"], found["num_deleted"], found["deleted_bytes"] > 100) == (True, 1, True)
    assert manifest.exists()


async def test_an_unused_corpus_goes_but_for_its_notes_and_sources(shelf: Shelf) -> None:
    manifest = shelf.corpus(shelf.job(**DONE).job_id)
    (manifest.parent / "sources.json").write_text("{}")
    found = await shelf.clean(**ONLY_CORPORA)
    assert [(item["outcome"], item["path"]) for item in found["items"]] == [("deleted", f"corpora/{DIGEST}")]
    left = {path.name for path in manifest.parent.rglob("*") if path.is_file()}
    assert left == {"sources.json", *(f"{job.job_id}.json" for job in shelf.store.page(JobFilter()))}
    assert (await shelf.clean(**ONLY_CORPORA))["items"] == []
    log = (await shelf.client.get("/v1/audit?action=clean")).json()["items"]
    assert [entry["object"] for entry in log] == ["nothing", "1 corpus"]
    assert log[1]["outcome"] == f"done: {found['deleted_bytes']} bytes"


async def test_a_corpus_stays_that_was_used_lately(shelf: Shelf) -> None:
    shelf.corpus(at=NOW - timedelta(days=29))
    assert "last used" in await shelf.reason(**ONLY_CORPORA)


async def test_a_corpus_stays_whose_job_ended_lately(shelf: Shelf) -> None:
    shelf.corpus(shelf.job(**{**DONE, "finished_at": NOW}).job_id)
    assert "last used" in await shelf.reason(**ONLY_CORPORA)


async def test_a_corpus_stays_that_a_result_of_lately_names(shelf: Shelf) -> None:
    """Jobs of before there were notes."""
    result = JobResult(state="SUCCEEDED", corpus={"digest": DIGEST})
    shelf.job(**{**DONE, "finished_at": NOW, "result": result})
    shelf.corpus()
    assert "last used" in await shelf.reason(**ONLY_CORPORA)


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.PAUSING,
                                   JobState.PAUSED, JobState.CANCELLING])  # fmt: skip
async def test_a_corpus_stays_that_a_job_needs(shelf: Shelf, state: JobState) -> None:
    job = shelf.job(state=state, attempt=1)
    manifest = shelf.corpus(job.job_id)
    assert f"{job.job_id} uses it and is {state}" in await shelf.reason(**ONLY_CORPORA)
    assert manifest.exists()


async def test_a_corpus_stays_that_a_queued_job_will_want(shelf: Shelf) -> None:
    """It has never run, so it has written no note; its spec has the same words as that of a job that has."""
    shelf.corpus(shelf.job(**DONE).job_id)
    waiting = shelf.job()
    assert f"{waiting.job_id} is QUEUED and has the same corpus section" in await shelf.reason(**ONLY_CORPORA)


async def test_a_queued_job_of_another_text_keeps_nothing(shelf: Shelf) -> None:
    shelf.corpus(shelf.job(**DONE).job_id)
    source = {"type": "text", "uris": ["/data/other.txt"]}
    spec = resolve_spec({"kind": "pretrain", "preset": "tiny", "corpus": {"sources": [source]}})
    shelf.job(spec_json=dump_spec(spec))
    assert (await shelf.clean(**ONLY_CORPORA))["num_deleted"] == 1


async def test_a_job_whose_spec_cannot_be_read_keeps_all(shelf: Shelf) -> None:
    """A later version's, while the service is being upgraded or was taken back."""
    shelf.corpus(shelf.job(**DONE).job_id)
    later = shelf.job(spec_json='{"kind": "pretrain", "of_tomorrow": 1}')
    assert f"{later.job_id} is QUEUED, and its spec cannot be read" in await shelf.reason(**ONLY_CORPORA)


async def test_checkpoints_stay_while_a_spec_cannot_be_read(shelf: Shelf) -> None:
    steps = shelf.checkpoints(shelf.job(**DONE), 100, 200)
    shelf.job(spec_json='{"kind": "finetune", "of_tomorrow": 1}')
    await shelf.clean(dry_run=False, checkpoints_to_keep=0)
    assert steps() == [100, 200]


async def test_nothing_goes_while_a_job_has_not_said_what_it_uses(shelf: Shelf) -> None:
    """It has just started, or its image is older than the notes."""
    shelf.corpus()
    silent = shelf.job(state=JobState.RUNNING, attempt=1)
    assert f"{silent.job_id} is RUNNING and has not said" in await shelf.reason(**ONLY_CORPORA)


async def test_a_job_past_the_service_keeps_its_corpus_until_it_has_a_result(shelf: Shelf) -> None:
    shelf.corpus("pt-ray")
    assert "has left no result" in await shelf.reason(**ONLY_CORPORA)
    shelf.folders.results["pt-ray"] = JobResult(state="SUCCEEDED")
    assert (await shelf.clean(**ONLY_CORPORA))["num_deleted"] == 1


async def test_what_is_being_made_is_left_alone(shelf: Shelf) -> None:
    manifest = shelf.corpus()
    manifest.unlink()
    uri = f"{shelf.settings.storage_uri}/leases/corpora-{DIGEST}.json"
    with lease(uri, "pt-1-a1", lambda: False) as is_ours:
        assert is_ours
        assert "making it now" in await shelf.reason(**ONLY_CORPORA)
    assert (await shelf.clean(**ONLY_CORPORA))["items"][0]["kind"] == "leftover"
    assert not (manifest.parent / "source-000" / "train-00000.bin").exists()


async def test_what_is_finished_between_the_look_and_the_lease_is_judged_anew(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was half made when it was listed; its maker is through, and over, before the lease is taken."""
    manifest = shelf.corpus()
    content = manifest.read_bytes()
    manifest.unlink()

    @contextmanager
    def late(*args: Any, **kwargs: Any) -> Iterator[bool]:
        manifest.write_bytes(content)
        with lease(*args, **kwargs) as is_ours:
            yield is_ours

    monkeypatch.setattr("service.shelf.clean_prepared.lease", late)
    assert "last used" in await shelf.reason(**ONLY_CORPORA)
    assert (manifest.parent / "source-000" / "train-00000.bin").exists()


async def test_texts_are_cleaned_as_corpora_are(shelf: Shelf) -> None:
    job = shelf.job(**DONE)
    folder = folder_of(shelf.settings, "texts", DIGEST)
    note_use(str(folder), job.job_id)
    for name in ("piece-000000-0000.parquet", "manifest.json"):
        (folder / name).write_text("{}")
    age(folder, OLD)
    assert [item["kind"] for item in (await shelf.clean(**ONLY_CORPORA))["items"]] == ["texts"]
    assert [path.name for path in folder.iterdir()] == ["uses"]


# ── a job that comes in between ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_that_begins_while_the_corpus_is_taken_away_gets_it_back(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment: the manifest is gone, and what was asked before is out of date."""
    manifest = shelf.corpus(shelf.job(**DONE).job_id)
    content = manifest.read_bytes()
    really_delete = storage.delete_tree

    def delete(uri: str) -> None:
        really_delete(uri)
        if uri.endswith("manifest.json"):
            late = shelf.job(state=JobState.STARTING, attempt=1)
            note_use(str(manifest.parent), f"{late.job_id}-a1")

    monkeypatch.setattr(storage, "delete_tree", delete)
    assert "uses it and is STARTING" in await shelf.reason(**ONLY_CORPORA)
    assert manifest.read_bytes() == content
    assert (manifest.parent / "source-000" / "train-00000.bin").exists()


async def test_a_deletion_that_dies_in_the_middle_leaves_nothing_that_looks_complete(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = shelf.corpus()
    really_delete = storage.delete_tree

    def delete(uri: str) -> None:
        if uri.endswith(".bin"):
            raise storage.StorageError(uri, "the network is gone")
        really_delete(uri)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "delete_tree", delete)
        found = await shelf.clean(**ONLY_CORPORA)
    assert (found["num_failed"], manifest.exists()) == (1, False)
    assert (await shelf.clean(**ONLY_CORPORA))["items"][0]["outcome"] == "deleted"


def test_markers_go_first_and_come_back(tmp_path: Path) -> None:
    for name in ("manifest.json", "data.bin"):
        (tmp_path / name).write_text(name)
    seen: list[list[str]] = []

    def need() -> str:
        seen.append(sorted(path.name for path in tmp_path.iterdir()))
        return "somebody"

    os.utime(tmp_path / "manifest.json", ns=(7, 7_000_000_007))
    with pytest.raises(StillNeededError, match="somebody"):
        withdraw(str(tmp_path), ("manifest.json",), None, need)
    assert (tmp_path / "manifest.json").stat().st_mtime_ns == 7_000_000_007  # by its age corpora are cleaned
    assert seen == [["data.bin"]]
    assert (tmp_path / "manifest.json").read_text() == "manifest.json"


async def test_one_cleans_at_a_time(shelf: Shelf) -> None:
    with SqlLocks(shelf.store._engine).holding("clean", 0.0):
        answer = await shelf.client.post("/v1/clean", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "cleaning_runs")


# ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, [300]), (2, [200, 300]), (9, [100, 200, 300])])
async def test_the_newest_checkpoints_stay(shelf: Shelf, keep: int, left: list[int]) -> None:
    steps = shelf.checkpoints(shelf.job(**DONE), 100, 200, 300, unfinished=400)
    await shelf.clean(dry_run=False, checkpoints_to_keep=keep)
    assert steps() == left


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.PAUSED])
async def test_checkpoints_of_jobs_that_are_not_over_are_not_looked_at(shelf: Shelf, state: JobState) -> None:
    steps = shelf.checkpoints(shelf.job(state=state, attempt=1), 100, 200, unfinished=300)
    assert (await shelf.clean(dry_run=False, checkpoints_to_keep=0))["items"] == []
    assert steps() == [100, 200, 300]


async def test_checkpoints_stay_that_a_retry_goes_on_from(shelf: Shelf) -> None:
    """A retry of a retry, too."""
    first = shelf.job(**{**DONE, "state": JobState.FAILED})
    second = shelf.job(**{**DONE, "state": JobState.FAILED}, retry_of=first.job_id)
    waiting = shelf.job(retry_of=second.job_id)
    steps = shelf.checkpoints(first, 100, 200)
    found = await shelf.clean(dry_run=False, checkpoints_to_keep=1)
    assert f"{waiting.job_id} is QUEUED and goes on with its work" in [item["reason"] for item in found["items"]]
    assert steps() == [100, 200]


@pytest.mark.parametrize("place", ["{job}", "{job}/checkpoints", "{job}/checkpoints/step_00000100", "file://{job}"])
async def test_checkpoints_stay_that_another_job_begins_with(shelf: Shelf, place: str) -> None:
    job = shelf.job(**DONE)
    steps = shelf.checkpoints(job, 100, 200)
    uri = place.format(job=shelf.path("jobs", job.job_id))
    sections = {
        "tokenizer": {"type": "pretrained", "uri": "/v.txt"},
        "initialization": {"type": "checkpoint", "uri": uri},
    }
    spec = resolve_spec({"kind": "pretrain", "preset": "tiny", **sections})
    shelf.job(state=JobState.PAUSED, attempt=1, spec_json=dump_spec(spec))
    await shelf.clean(dry_run=False, checkpoints_to_keep=0)
    assert steps() == [100, 200]


# ── folders of archived jobs ──────────────────────────────────────────────────────────────────────────────────────────


ARCHIVED = {"dry_run": False, "archived_jobs_days": 30, "checkpoints_to_keep": None, "unused_corpora_days": None}


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({"is_archived": True}, False),
        ({"is_archived": False}, True),
        ({"is_archived": True, "finished_at": NOW}, True),
    ],
)
async def test_folders_of_archived_jobs_go(shelf: Shelf, changes: dict[str, Any], stays: bool) -> None:
    job = shelf.job(**{**DONE, **changes})
    folder = export_files(shelf.settings, job.job_id)
    await shelf.clean(**ARCHIVED)
    assert folder.exists() == stays
    assert shelf.path("jobs", job.job_id).exists() == stays


async def test_the_folder_of_a_registered_model_stays(shelf: Shelf) -> None:
    job = make_job(**DONE, is_archived=True)
    result = made_by(shelf.settings, job.job_id, "m", 1)
    shelf.job(job_id=job.job_id, **DONE, is_archived=True, result=result)
    folder = export_files(shelf.settings, job.job_id)
    shelf.registry.add("m")
    assert "m version 1 is registered" in await shelf.reason(**ARCHIVED)
    shelf.registry.is_away = True
    assert "cannot be told" in await shelf.reason(**ARCHIVED)
    shelf.registry.is_away = False
    shelf.registry.forget("m")
    assert (await shelf.clean(**ARCHIVED))["num_deleted"] == 1
    assert not folder.exists()


async def test_the_folder_of_a_job_that_died_after_it_registered_stays(shelf: Shelf) -> None:
    """It left no result; the version says whose it is."""
    job = shelf.job(**{**DONE, "state": JobState.FAILED}, is_archived=True)
    export_files(shelf.settings, job.job_id)
    shelf.registry.add("m", 4, tags={"electra.job_id": job.job_id})
    assert "m version 4 is registered" in await shelf.reason(**ARCHIVED)


async def test_folders_that_are_nobodys_stay(shelf: Shelf) -> None:
    folder = export_files(shelf.settings, "pt-unknown")
    await shelf.clean(**ARCHIVED)
    assert folder.exists()
