"""Following events: over HTTP, through the client and on the command line."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from live_service import serve_desk
from service_doubles import make_job
from typer.testing import CliRunner

from service.cli import app
from service.cli.events import event_line
from service.client import ElectraClient, connection
from service.client.events import FollowedEvent
from service.feeds import feed as feed_module
from service.feeds.feed import End, EventFeed, FeedItem, Opened, Reset
from service.http.desk import Desk
from service.ledger.events import SqlEventStore
from service.ledger.store import SqlJobStore
from service.records import Job
from service.settings import Settings
from service.states import JobState

pytestmark = pytest.mark.anyio


@pytest.fixture
def feed(desk: Desk) -> EventFeed:
    return desk.events


@pytest.fixture
def event_store(store: SqlJobStore) -> SqlEventStore:
    return SqlEventStore(store._engine)


def add(store: SqlJobStore, number: int = 1) -> Job:
    for _ in range(number):
        job = make_job()
        store.insert(job)
    return job


def finish(store: SqlJobStore, job: Job) -> None:
    job = store.update(job, state=JobState.STARTING, attempt=1)
    store.update(job, state=JobState.SUCCEEDED, finished_at=datetime.now(UTC))


async def take(items: AsyncIterator[FeedItem], number: int) -> list[FeedItem]:
    return [await asyncio.wait_for(anext(items), 30) for _ in range(number)]


def seqs(items: list[FeedItem]) -> list[int]:
    return [item.seq for item in items]


def names(text: str) -> list[str]:
    return [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]


async def test_new_events_come_to_all_who_follow(feed: EventFeed, store: SqlJobStore) -> None:
    add(store, 3)
    first, second = feed.follow(), feed.follow()
    assert [await anext(first), await anext(second)] == [Opened(3), Opened(3)]
    add(store, 2)
    assert seqs(await take(first, 2)) == seqs(await take(second, 2)) == [4, 5]
    await first.aclose()
    await second.aclose()
    assert feed.num_followers == 0


async def test_following_goes_on_after_the_last_event_seen(feed: EventFeed, store: SqlJobStore) -> None:
    add(store, 5)
    items = feed.follow(2)
    assert seqs(await take(items, 4)) == [2, 3, 4, 5]
    add(store)
    assert seqs(await take(items, 1)) == [6]
    await items.aclose()


async def test_a_slow_follower_misses_nothing(
    feed: EventFeed, store: SqlJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no longer fits into the ring is read from the database, page by page."""
    monkeypatch.setattr(feed_module, "PAGE_EVENTS", 3)
    feed._ring = feed._ring.__class__(maxlen=2)
    slow, quick = feed.follow(), feed.follow()
    await take(slow, 1)
    await take(quick, 1)
    for _ in range(12):
        await asyncio.to_thread(add, store)
    assert seqs(await take(quick, 12)) == list(range(1, 13))
    assert seqs(await take(slow, 12)) == list(range(1, 13))
    await slow.aclose()
    await quick.aclose()


async def test_a_gap_is_said(feed: EventFeed, store: SqlJobStore, event_store: SqlEventStore) -> None:
    add(store, 6)
    event_store.prune_events(datetime(2000, 1, 1, tzinfo=UTC), keep=2, limit=100)
    items = feed.follow(1)
    got = await take(items, 4)
    assert got[:2] == [Opened(1), Reset(4)]
    assert seqs(got[2:]) == [5, 6]
    await items.aclose()


async def test_a_number_that_was_never_given_out_is_reset(feed: EventFeed, store: SqlJobStore) -> None:
    add(store)
    items = feed.follow(77)
    assert await take(items, 2) == [Opened(77), Reset(1)]
    add(store)
    assert seqs(await take(items, 1)) == [2]
    await items.aclose()


async def test_a_jobs_events_end_with_it(feed: EventFeed, store: SqlJobStore) -> None:
    job = add(store)
    items = feed.follow(0, job.job_id)
    await take(items, 2)
    add(store)
    finish(store, job)
    assert seqs(await take(items, 3)) == [3, 4, 4]
    assert [item async for item in items] == []


@pytest.mark.parametrize(("after", "given"), [(None, []), (0, [1, 2, 3]), (3, []), (2, [3])])
async def test_events_of_a_job_that_is_over_end_at_once(
    feed: EventFeed, store: SqlJobStore, after: int | None, given: list[int]
) -> None:
    job = add(store)
    finish(store, job)
    items = [item async for item in feed.follow(after, job.job_id)]
    assert isinstance(items[0], Opened)
    assert seqs(items[1:-1]) == given
    assert items[-1] == End(3, "SUCCEEDED")


async def test_a_closed_feed_lets_all_go(feed: EventFeed) -> None:
    items = feed.follow()
    await anext(items)
    waiting = asyncio.ensure_future(anext(items, None))
    await asyncio.sleep(0.05)
    feed.close()
    assert await asyncio.wait_for(waiting, 30) is None


async def test_a_database_that_is_away_for_a_while_costs_nobody_an_event(
    feed: EventFeed, store: SqlJobStore, event_store: SqlEventStore
) -> None:
    class Away:
        is_away = False

        def read_events(self, *given: Any) -> Any:
            if self.is_away:
                raise ConnectionError
            return event_store.read_events(*given)

    away = Away()
    feed._store = away  # type: ignore[assignment]
    items = feed.follow()
    await anext(items)
    away.is_away = True
    add(store)
    waiting = asyncio.ensure_future(anext(items))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    away.is_away = False
    assert (await asyncio.wait_for(waiting, 30)).seq == 1
    await items.aclose()


async def test_more_followers_than_may_are_refused(
    client: httpx.AsyncClient, feed: EventFeed, store: SqlJobStore
) -> None:
    job = add(store)
    finish(store, job)
    feed._max_followers = 1
    items = feed.follow()
    await anext(items)
    answer = await client.get(f"/v1/jobs/{job.job_id}/events")
    assert (answer.status_code, answer.json()["code"]) == (503, "too_many_followers")
    await items.aclose()
    assert (await client.get(f"/v1/jobs/{job.job_id}/events")).status_code == 200


async def test_the_stream_of_a_job(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    job = add(store)
    finish(store, job)
    path = f"/v1/jobs/{job.job_id}/events"
    answer = await client.get(path, params={"after": 0})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert names(answer.text) == ["open", "created", "state", "state", "end"]
    data = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert data[1]["payload"]["name"] == job.name
    assert {one["job_id"] for one in data[1:4]} == {job.job_id}
    resumed = await client.get(path, params={"after": 0}, headers={"Last-Event-ID": "2"})
    assert names(resumed.text) == ["open", "state", "end"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/jobs/none/events", {}, 404),
        ("/v1/events?after=-1", {}, 422),
        ("/v1/events?since=1", {}, 422),
        ("/v1/events", {"Last-Event-ID": "1:1"}, 422),
        ("/v1/events", {"Last-Event-ID": "9" * 16}, 422),
    ],
)
async def test_what_is_no_position_is_refused(
    client: httpx.AsyncClient, feed: EventFeed, path: str, headers: dict[str, str], status: int
) -> None:
    assert (await client.get(path, headers=headers)).status_code == status
    assert feed.num_followers == 0


def test_the_client_follows_across_broken_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STREAM_RETRY_SECONDS", 0.0)
    asked: list[str | None] = []
    one = 'id: {0}\nevent: state\ndata: {{"seq": {0}, "type": "state", "job_id": "j", "payload": {{}}}}\n\n'
    first = 'id: 4\nevent: open\ndata: {"seq": 4}\n\n' + one.format(5)
    last = 'id: 7\nevent: reset\ndata: {"seq": 7}\n\nevent: news\ndata: ?\n\n' + one.format(8)
    streams = [first, last + "event: end\ndata: {}\n\n"]

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Last-Event-ID"))
        if len(asked) == 2:
            raise httpx.ConnectError("being restarted")
        return httpx.Response(200, text=streams.pop(0), headers={"Content-Type": "text/event-stream"})

    with ElectraClient("http://electra", transport=httpx.MockTransport(handler)) as client:
        got = [(event.type, event.seq) for event in client.follow_events("j")]
    assert got == [("state", 5), ("reset", 7), ("state", 8)]
    assert asked == [None, "5", "5"]


def test_the_client_follows_a_real_service(settings: Settings, desk: Desk, store: SqlJobStore) -> None:
    add(store, 3)
    with serve_desk(settings, desk) as url, ElectraClient(url) as client:
        assert [event.seq for event in itertools.islice(client.follow_events(after=1), 2)] == [2, 3]


def test_the_command_prints_a_jobs_life(settings: Settings, desk: Desk, store: SqlJobStore) -> None:
    job = add(store)
    finish(store, job)
    with serve_desk(settings, desk) as url:
        lines = CliRunner().invoke(app, ["events", job.job_id, "--url", url]).output.splitlines()
        documents = CliRunner().invoke(app, ["events", job.job_id, "--json", "--after", "2", "--url", url]).output
    assert [line.split()[4] for line in lines] == ["created", "state", "state"]
    assert "STARTING → SUCCEEDED" in lines[-1]
    assert [json.loads(line)["payload"]["state"] for line in documents.splitlines()] == ["SUCCEEDED"]


def test_nothing_in_an_event_reaches_the_terminal_raw() -> None:
    payload = {"stage": "train", "message": "a\x1b[2Jb\nc"}
    line = event_line(FollowedEvent(type="progress", seq=1, at=datetime.now(UTC), job_id="j\x07", payload=payload))
    assert line.isprintable()
