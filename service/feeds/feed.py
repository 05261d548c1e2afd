"""Events as they come: one poller a process reads the database for all who follow.

The poller keeps the newest events in one ring. A follower reads the ring from its own position; one that comes late or
reads slowly reads pages from the database until it has caught up. Nothing is kept for a single follower, so a slow one
costs no memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass

import anyio
import anyio.to_thread
import structlog

from service.errors import JobNotFoundError, TooManyFollowersError
from service.feeds.interfaces import EventStore
from service.feeds.records import EventType, JobEvent
from service.records import Job
from service.states import TERMINAL_STATES

log = structlog.get_logger(__name__)

RING_EVENTS = 1000
PAGE_EVENTS = 200
_TERMINAL = frozenset(state.value for state in TERMINAL_STATES)


@dataclass(frozen=True)
class Opened:
    """The first word to every follower: where it stands."""

    seq: int


@dataclass(frozen=True)
class Reset:
    """Events are missing: what was listed before is out of date, and has to be listed again."""

    seq: int
    """Events go on after this one."""


@dataclass(frozen=True)
class End:
    """The job is over, and everything of it has been told."""

    seq: int
    state: str


FeedItem = Opened | Reset | JobEvent | End


class EventFeed:
    """Followers of events. All of it runs in one event loop, but for the readings of the database."""

    def __init__(
        self,
        store: EventStore,
        get_job: Callable[[str], Job | None],
        *,
        poll_seconds: float,
        max_followers: int,
        stream_seconds: float = 3600.0,
    ) -> None:
        """Args:
        store: where events are.
        get_job: a job as it is now.
        poll_seconds: pause between two looks at the database, when there is nothing new.
        max_followers: at a time; more are refused.
        stream_seconds: how long one may follow before it has to come again, which spreads followers over replicas.
        """
        self._store = store
        self._get_job = get_job
        self._poll_seconds = poll_seconds
        self._max_followers = max_followers
        self._stream_seconds = stream_seconds
        self._ring: deque[JobEvent] = deque(maxlen=RING_EVENTS)
        self._position = 0
        """Everything up to here has been read."""
        self._news = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._is_closed = False
        self.num_followers = 0

    async def follow(
        self, after: int | None = None, job_id: str | None = None, projects: frozenset[str] | None = None
    ) -> AsyncGenerator[FeedItem]:
        """Events after a number, of one job or of all, until the job is over or the feed closes; from now on without a
        number. The first item is always an `Opened`.

        Args:
            after: number of an event.
            job_id: of this job alone.
            projects: of jobs of these projects alone; None for all.

        Raises:
            TooManyFollowersError: there are as many as may be.
            JobNotFoundError: there is no such job.
        """
        if self._is_closed or self.num_followers >= self._max_followers:
            raise TooManyFollowersError(f"{self.num_followers} follow events already, and no more may.")
        self.num_followers += 1
        try:
            now = (await anyio.to_thread.run_sync(self._store.read_events, 0, 0)).last_seq
            # The job is read between two looks at the bounds: if it is over then, its last event lies within the later
            # one; and if it ends after it was read, its end comes after the earlier one.
            job = None if job_id is None else await anyio.to_thread.run_sync(self._job, job_id)
            head = (await anyio.to_thread.run_sync(self._store.read_events, 0, 0)).last_seq
            self._start_poller(head)
            position = now if after is None else after
            yield Opened(position)
            if position > head:  # of a database that is no longer this one
                position = head
                yield Reset(position)
            ends_at = head if job is not None and job.state in TERMINAL_STATES else None
            async for item in self._items(position, job_id, projects):
                if isinstance(item, int):
                    if job is not None and ends_at is not None and item >= ends_at:
                        yield End(item, job.state.value)
                        return
                    continue
                yield item
                if job_id is not None and isinstance(item, JobEvent) and (state := _end_of(item)) is not None:
                    yield End(item.seq, state)
                    return
        finally:
            self.num_followers -= 1
            if self.num_followers == 0:
                self._stop_poller()

    def close(self) -> None:
        """Let all followers go. Called in the event loop."""
        self._is_closed = True
        self._stop_poller()
        self._tell()

    async def _items(
        self, position: int, job_id: str | None, projects: frozenset[str] | None
    ) -> AsyncIterator[Reset | JobEvent | int]:
        """What there is after a position; a number says that everything up to it has been given."""
        until = time.monotonic() + self._stream_seconds
        while not self._is_closed and (seconds_left := until - time.monotonic()) > 0:
            news = self._news  # before the look: what comes after it is not waited for
            floor = self._ring[0].seq - 1 if self._ring else self._position
            if position >= floor:
                events = [event for event in self._ring if event.seq > position]
                position = max(position, self._position)
                for event in events:
                    if job_id in (None, event.job_id) and (projects is None or event.project in projects):
                        yield event
                yield position
                if position >= self._position:
                    with anyio.move_on_after(seconds_left):
                        await news.wait()
                continue
            page = await anyio.to_thread.run_sync(self._store.read_events, position, PAGE_EVENTS, job_id, projects)
            if page.pruned_seq > position:
                position = page.pruned_seq
                yield Reset(position)
                continue
            for event in page.events:
                yield event
            given = page.events[-1].seq if page.events else position
            # A page that is not full may hold an event that was written after its last number was read.
            position = given if len(page.events) == PAGE_EVENTS else max(position, page.last_seq, given)
            yield position

    def _job(self, job_id: str) -> Job:
        job = self._get_job(job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def _start_poller(self, head: int) -> None:
        if self._poller is None and not self._is_closed:
            self._ring.clear()
            self._position = head
            self._news = asyncio.Event()  # of this loop
            self._poller = asyncio.get_running_loop().create_task(self._poll(), name="events")

    def _stop_poller(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def _poll(self) -> None:
        is_away = False
        while True:
            try:
                page = await anyio.to_thread.run_sync(self._store.read_events, self._position, RING_EVENTS)
                is_away = False
            except Exception:  # a database that is away comes back, and followers wait for it
                if not is_away:
                    log.exception("events_unreadable")
                is_away = True
                await asyncio.sleep(self._poll_seconds)
                continue
            if page.pruned_seq > self._position:
                # Longer away than events are kept: followers find the gap for themselves.
                self._ring.clear()
                self._position = page.pruned_seq
                self._tell()
            elif page.events:
                self._ring.extend(page.events)
                self._position = page.events[-1].seq
                self._tell()
            if len(page.events) < RING_EVENTS:
                await asyncio.sleep(self._poll_seconds)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _end_of(event: JobEvent) -> str | None:
    state = event.payload.get("state")
    return state if event.type is EventType.STATE and state in _TERMINAL else None
