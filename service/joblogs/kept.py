"""The logs that a job's processes keep in storage while they run: listed, searched page by page, followed."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import anyio
import anyio.to_thread

from service.errors import AttemptNotFoundError, JobNotFoundError, LogsUnavailableError, TooManyFollowersError
from service.interfaces import JobStore
from service.joblogs.cursors import LogCursor, Position
from service.joblogs.lines import KeptLine
from service.joblogs.merging import LineFilter, Merged, Reading
from service.joblogs.parts import LogParts, SourceFiles
from service.joblogs.printed import LogEnd, is_log_whole
from service.records import Job
from service.settings import Settings

POLL_INTERVAL_SECONDS = 2.0
MAX_MERGED_SOURCES = 64
"""Laid into one another at a time; of more, those first by name come first. Also as many as can be followed."""
_LINES_A_POLL = 500
_READERS = 4
"""Answers that are read for at a time: each holds some megabytes and keeps a processor busy."""
LOOK_SECONDS = 0.5
"""Of the followers of an attempt, those that look within so long share one look."""
_KEPT_LOOKS = 64


@dataclass(frozen=True)
class LogWish:
    """Which lines of which sources are wanted."""

    attempt: int | None = None
    """The current one when None; of followers, the first."""
    sources: Sequence[str] = ()
    """Names, or beginnings of names and `*`; none for all."""
    lines: LineFilter = field(default_factory=LineFilter)

    def takes(self, source: str) -> bool:
        """Whether a source is wanted."""
        return not self.sources or any(
            source.startswith(name[:-1]) if name.endswith("*") else source == name for name in self.sources
        )


@dataclass(frozen=True)
class LogPage:
    """Some lines, oldest first."""

    lines: Sequence[KeptLine]
    next_cursor: str | None
    """Leads to the lines after these; None at the end."""
    is_truncated: bool
    """The page ends early for what had to be read for it."""


@dataclass(frozen=True)
class FollowedLine:
    """A line, and the cursor that goes on behind it."""

    line: KeptLine
    cursor: str


@dataclass(frozen=True)
class _Look:
    """A job, and after it what an attempt of it has kept: what the row calls finished had written all of this."""

    at: float
    """By the clock that paces looks."""
    job: Job
    is_over: bool
    sources: Mapping[str, SourceFiles]


@dataclass
class _Shared:
    """The last look at an attempt."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while one looks: the others would only look at the same."""
    look: _Look | None = None


class KeptLogs:
    """Reads what processes keep below `{job_uri}/logs`."""

    def __init__(self, store: JobStore, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` paces looks: seconds from any start."""
        self._store = store
        self._clock = clock
        self._looks: dict[tuple[str, int], _Shared] = {}
        self._parts = LogParts(settings)
        self._max_followers = settings.max_log_followers
        self.num_followers = 0
        self._limiter: anyio.CapacityLimiter | None = None

    def sources(self, job: Job, attempt: int | None) -> tuple[int, list[SourceFiles]]:
        """The attempt and what it has kept, by name.

        Raises:
            AttemptNotFoundError: there was no such attempt.
            LogsUnavailableError: the storage does not answer.
        """
        number = _checked_attempt(job, attempt)
        found = self._parts.sources(job.job_id, number) if number else {}
        return number, list(found.values())

    async def page(self, job: Job, wish: LogWish, cursor: LogCursor | None, limit: int) -> LogPage:
        """Lines of one attempt by time, from a cursor on.

        Raises:
            AttemptNotFoundError: there was no such attempt.
            LogsUnavailableError: the storage does not answer.
        """
        return await anyio.to_thread.run_sync(self._page, job, wish, cursor, limit, limiter=self._readers)

    async def followed(
        self, job_id: str, wish: LogWish, cursor: LogCursor | None
    ) -> AsyncGenerator[FollowedLine | LogEnd | None]:
        """`follow`, by one of a bounded number of followers. The first item is None, and says that there is room.

        Raises:
            TooManyFollowersError: there are as many as may be.
            JobNotFoundError: there is no such job.
        """
        with self.place():
            yield None
            async for item in self.follow(job_id, wish, cursor):
                yield item

    @contextmanager
    def place(self) -> Iterator[None]:
        """That of one follower, of printed logs too.

        Raises:
            TooManyFollowersError: there are as many as may be.
        """
        if self.num_followers >= self._max_followers:
            raise TooManyFollowersError(f"{self.num_followers} follow logs already, and no more may.")
        self.num_followers += 1
        try:
            yield
        finally:
            self.num_followers -= 1

    async def follow(
        self, job_id: str, wish: LogWish, cursor: LogCursor | None
    ) -> AsyncIterator[FollowedLine | LogEnd]:
        """Lines as they are kept, attempt by attempt, to the end of the job.

        Lines of one source come in their order. A process writes every few seconds, so those of several are in order
        of time only within such a while.

        Raises:
            JobNotFoundError: there is no such job.
        """
        followed = _Followed(cursor or LogCursor(wish.attempt or 1), wish)
        while True:
            try:
                look, merged = await anyio.to_thread.run_sync(self._news, job_id, followed, limiter=self._readers)
            except LogsUnavailableError:
                await anyio.sleep(POLL_INTERVAL_SECONDS)
                continue
            if merged is not None:
                for found in merged.lines:
                    yield FollowedLine(found.line, followed.pass_by(found.line.source, found.position))
                followed.reach(merged)
                if merged.has_more:
                    continue
                if look.job.attempt > followed.cursor.attempt:
                    followed = _Followed(LogCursor(followed.cursor.attempt + 1), wish)
                    continue
            if look.is_over:
                yield LogEnd(look.job)
                return
            await anyio.sleep(POLL_INTERVAL_SECONDS)

    @property
    def _readers(self) -> anyio.CapacityLimiter:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_READERS)  # belongs to the event loop, which is not there at first
        return self._limiter

    def _get(self, job_id: str) -> Job:
        job = self._store.get(job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def _page(self, job: Job, wish: LogWish, cursor: LogCursor | None, limit: int) -> LogPage:
        attempt = _checked_attempt(job, cursor.attempt if cursor is not None else wish.attempt)
        if not attempt:
            return LogPage((), None, False)
        place = cursor or LogCursor(attempt)
        sources = [
            files
            for name, files in self._parts.sources(job.job_id, attempt).items()
            if wish.takes(name) and name > place.after_source
        ]
        reading = Reading(self._parts, wish.lines, limit)
        while sources:
            together, sources = sources[:MAX_MERGED_SOURCES], sources[MAX_MERGED_SOURCES:]
            merged = reading.merge(together, place.positions)
            if merged.has_more:
                following = replace(place, positions=_within(merged.positions, together))
                return LogPage(_lines(merged), following.encode(), merged.is_truncated)
            place = LogCursor(attempt, together[-1].name)
            if sources and (reading.is_spent or len(merged.lines) >= limit):
                return LogPage(_lines(merged), place.encode(), len(merged.lines) < limit)
        return LogPage([found.line for found in reading.lines], None, False)

    def _news(self, job_id: str, followed: _Followed) -> tuple[_Look, Merged | None]:
        """What a follower has not seen; nothing while its attempt has not begun."""
        look = self._look(job_id, followed.cursor.attempt)
        if look.job.attempt < followed.cursor.attempt:
            return look, None
        changed = followed.changed(look.sources.values())
        reading = Reading(self._parts, followed.wish.lines, _LINES_A_POLL)
        return look, reading.merge(changed, followed.cursor.positions)

    def _look(self, job_id: str, attempt: int) -> _Look:
        """One that is new enough, of this follower or of another."""
        if (job_id, attempt) not in self._looks and len(self._looks) >= _KEPT_LOOKS:
            self._looks.pop(next(iter(self._looks)), None)
        shared = self._looks.setdefault((job_id, attempt), _Shared())
        with shared.lock:
            if shared.look is None or self._clock() - shared.look.at >= LOOK_SECONDS:
                shared.look = None  # what cannot be read now is not what it was
                at, job = self._clock(), self._get(job_id)
                is_over = is_log_whole(job)
                listed = self._parts.sources(job_id, attempt) if job.attempt >= attempt else {}
                shared.look = _Look(at, job, is_over, listed)
            return shared.look


class _Followed:
    """Where a follower is in one attempt."""

    def __init__(self, cursor: LogCursor, wish: LogWish) -> None:
        self.cursor = cursor
        self.wish = wish
        self._named = dict.fromkeys(cursor.positions)
        self._read: dict[str, tuple[str, ...]] = {}
        self._looked_at: dict[str, tuple[str, ...]] = {}

    def changed(self, sources: Iterable[SourceFiles]) -> list[SourceFiles]:
        """Sources in which there may be something new."""
        found = []
        for source in sources:
            if source.name not in self._named and self.wish.takes(source.name):
                if len(self._named) >= MAX_MERGED_SOURCES:
                    continue
                self._named[source.name] = None
            if source.name in self._named and self._read.get(source.name) != source.state:
                found.append(source)
        self._looked_at = {source.name: source.state for source in found}
        return found

    def pass_by(self, source: str, position: Position) -> str:
        """A line was given out; the cursor behind it."""
        self.cursor = replace(self.cursor, positions={**self.cursor.positions, source: position})
        return self.cursor.encode()

    def reach(self, merged: Merged) -> None:
        """All that was read was given out."""
        self.cursor = replace(self.cursor, positions=merged.positions)
        if not merged.has_more:
            self._read |= self._looked_at


def _checked_attempt(job: Job, attempt: int | None) -> int:
    if attempt is not None and not 1 <= attempt <= job.attempt:
        raise AttemptNotFoundError(job.job_id, attempt, job.attempt)
    return attempt or job.attempt


def _within(positions: Mapping[str, Position], sources: Iterable[SourceFiles]) -> dict[str, Position]:
    return {source.name: positions[source.name] for source in sources if source.name in positions}


def _lines(merged: Merged) -> list[KeptLine]:
    return [found.line for found in merged.lines]
