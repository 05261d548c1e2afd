from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import httpx
import pytest
from service_doubles import FakeLauncher, MemoryFolders, make_job

from service.joblogs import printed
from service.ledger.store import SqlJobStore
from service.records import Job
from service.states import JobState

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "POLL_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(printed, "_CACHE_SECONDS", 0.0)


@pytest.fixture
def job(store: SqlJobStore, launcher: FakeLauncher, folders: MemoryFolders) -> Job:
    """The second attempt runs, and has printed two lines and a half."""
    job = make_job(state=JobState.RUNNING, attempt=2)
    store.insert(job)
    folders.logs[job.job_id, 1] = "one\ntwo, cut off"
    launcher.logs[f"{job.job_id}-a2"] = "three\r\nfo\x0cur \u2028 é\nhal"
    return job


def finish(store: SqlJobStore, folders: MemoryFolders, job: Job, log: str) -> None:
    over = store.update(job, state=JobState.SUCCEEDED, finished_at=datetime.now(UTC))
    folders.logs[job.job_id, 2] = log
    store.update(over, is_log_saved=True)


def events(text: str) -> list[tuple[str, str, str]]:
    """(event, id, data) of each event; comments are keep-alives."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if fields:
            found.append((fields.get("event", ""), fields.get("id", ""), fields.get("data", "")))
    return found


async def test_plain_text_of_an_attempt(client: httpx.AsyncClient, job: Job) -> None:
    path = f"/v1/jobs/{job.job_id}/logs"
    now = await client.get(path)
    assert now.headers["content-type"] == "text/plain; charset=utf-8"
    assert now.text == "three\r\nfo\x0cur \u2028 é\nhal"
    assert (await client.get(path, params={"attempt": 1})).text == "one\ntwo, cut off"
    assert (await client.get(path, params={"tail": 1, "attempt": 1})).text == "two, cut off"
    assert (await client.get(path, params={"tail": 2})).text == "fo\x0cur \u2028 é\nhal"
    none = await client.get(path, params={"attempt": 3})
    assert (none.status_code, none.json()["code"]) == (404, "attempt_not_found")


async def test_a_queued_job_has_printed_nothing(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    job = make_job()
    store.insert(job)
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs")
    assert (answer.status_code, answer.text) == (200, "")


async def test_no_ray_no_log(client: httpx.AsyncClient, job: Job, launcher: FakeLauncher) -> None:
    launcher.is_down = True
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs")
    assert (answer.status_code, answer.json()["code"]) == (503, "logs_unavailable")
    assert (await client.get(f"/v1/jobs/{job.job_id}/logs", params={"attempt": 1})).status_code == 200


async def test_a_paused_jobs_log_is_read_without_ray(
    client: httpx.AsyncClient, store: SqlJobStore, launcher: FakeLauncher, folders: MemoryFolders, job: Job
) -> None:
    folders.logs[job.job_id, 2] = "saved\n"
    store.update(job, state=JobState.PAUSED)
    launcher.is_down = True
    assert (await client.get(f"/v1/jobs/{job.job_id}/logs")).text == "saved\n"


async def test_following_a_job_to_its_end(
    client: httpx.AsyncClient, job: Job, store: SqlJobStore, folders: MemoryFolders, launcher: FakeLauncher
) -> None:
    """Every line of every attempt once, whole, and then the end."""
    path = f"/v1/jobs/{job.job_id}/logs"
    following = asyncio.ensure_future(client.get(path, headers={"Accept": "text/event-stream"}))
    await asyncio.sleep(0.1)
    launcher.is_down = True
    await asyncio.sleep(0.1)
    finish(store, folders, job, "three\r\nfo\x0cur \u2028 é\nhalf\n\nlast")
    answer = await asyncio.wait_for(following, 10)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events(answer.text)[:2] == [("", "1:1", "one"), ("", "1:2", "two, cut off")]
    assert [event[1] for event in events(answer.text)[2:-1]] == ["2:1", "2:2", "2:3", "2:4", "2:5"]
    assert [event[2] for event in events(answer.text)[-4:]] == ["half", "", "last", "SUCCEEDED"]
    assert events(answer.text)[-1] == ("end", "", "SUCCEEDED")


@pytest.mark.parametrize(("last", "next_id"), [("1:1", "1:2"), ("1:2", "2:1"), ("2:2", "2:3"), ("2:3", "")])
async def test_following_goes_on_where_it_ended(
    client: httpx.AsyncClient, job: Job, store: SqlJobStore, folders: MemoryFolders, last: str, next_id: str
) -> None:
    finish(store, folders, job, "a\nb\nc\n")
    path = f"/v1/jobs/{job.job_id}/logs?follow=true"
    answer = await client.get(path, headers={"Last-Event-ID": last})
    assert events(answer.text)[0][1] == next_id
    assert events(answer.text)[-1][0] == "end"


async def test_a_foreign_event_id_is_refused(client: httpx.AsyncClient, job: Job) -> None:
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs?follow=true", headers={"Last-Event-ID": "12"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/header/Last-Event-ID")


async def test_a_job_cancelled_in_the_queue_ends_at_once(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    job = make_job(state=JobState.CANCELLED, finished_at=datetime.now(UTC), is_log_saved=True)
    store.insert(job)
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs?follow=true")
    assert events(answer.text) == [("end", "", "CANCELLED")]
