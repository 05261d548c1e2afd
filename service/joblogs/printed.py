"""What jobs printed: from Ray while an attempt runs, from the job's folder afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import anyio.to_thread

from service.errors import AttemptNotFoundError, JobNotFoundError, LogsUnavailableError
from service.interfaces import FolderError, JobFolders, JobStore, Launcher, LauncherError
from service.records import Job
from service.states import WAITING_STATES

POLL_INTERVAL_SECONDS = 1.0
_CACHE_SECONDS = 0.5
_CACHE_ENTRIES = 16
_LAST_LINES_PATIENCE = timedelta(seconds=60)
"""How long followers of a finished job wait for its whole log; after that they get what there is."""


class LinePosition(NamedTuple):
    """A line of a job's log, both counted from 1. Line 0 stands before the first."""

    attempt: int
    line: int

    def __str__(self) -> str:
        return f"{self.attempt}:{self.line}"


BEGINNING = LinePosition(1, 0)


@dataclass(frozen=True)
class LogLine:
    """One line."""

    position: LinePosition
    text: str


@dataclass(frozen=True)
class LogEnd:
    """There is nothing more: the job is over."""

    job: Job


class JobLogs:
    """Reads logs; many followers of one job cost Ray no more than one."""

    def __init__(self, store: JobStore, launcher: Launcher, folders: JobFolders) -> None:
        self._store = store
        self._launcher = launcher
        self._folders = folders
        self._cache: dict[str, tuple[float, str | None]] = {}
        self._lock = threading.Lock()

    def read(self, job: Job, attempt: int | None = None, tail: int | None = None) -> str:
        """What an attempt printed, the current one unless said otherwise; the last `tail` lines of it.

        Raises:
            AttemptNotFoundError: there was no such attempt.
            LogsUnavailableError: neither Ray nor the storage answers.
        """
        if attempt is not None and not 1 <= attempt <= job.attempt:
            raise AttemptNotFoundError(job.job_id, attempt, job.attempt)
        if job.attempt == 0:
            return ""
        printed = self._read(job, attempt or job.attempt)
        return printed if tail is None else _tail(printed, tail)

    async def follow(self, job_id: str, after: LinePosition = BEGINNING) -> AsyncIterator[LogLine | LogEnd]:
        """Lines after a position as they are printed, attempt by attempt, to the end of the job.

        Raises:
            JobNotFoundError: there is no such job.
        """
        while True:
            # The row is read before the log: what the row calls finished has printed all it will.
            job = await anyio.to_thread.run_sync(self._get, job_id)
            if job.attempt >= after.attempt:
                is_last = job.attempt == after.attempt
                is_whole = not is_last or is_log_whole(job)
                lines = await anyio.to_thread.run_sync(self._lines, job, after.attempt, is_whole)
                if lines is None:
                    await anyio.sleep(POLL_INTERVAL_SECONDS)
                    continue
                for number, text in enumerate(lines[after.line :], after.line + 1):
                    after = LinePosition(after.attempt, number)
                    yield LogLine(after, text)
                if not is_last:
                    after = LinePosition(after.attempt + 1, 0)
                    continue
            if job.state.is_terminal and (is_log_whole(job) or job.attempt < after.attempt):
                yield LogEnd(job)
                return
            await anyio.sleep(POLL_INTERVAL_SECONDS)

    def _get(self, job_id: str) -> Job:
        job = self._store.get(job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def _lines(self, job: Job, attempt: int, is_whole: bool) -> list[str] | None:
        """Complete lines; None if they cannot be read now, which a follower waits out."""
        try:
            printed = self._read(job, attempt)
        except LogsUnavailableError:
            return None
        lines = printed.split("\n")
        rest = lines.pop()
        # A line without its end may grow yet, unless nothing more comes.
        return [*lines, rest] if rest and is_whole else lines

    def _read(self, job: Job, attempt: int) -> str:
        try:
            # Of a job that is paused or queued again nothing runs, and its log was saved before it came there.
            if attempt < job.attempt or job.is_log_saved or job.state in WAITING_STATES:
                return self._folders.read_log(job.job_id, attempt) or ""
            printed = self._read_from_ray(job.submission_of(attempt))
        except (LauncherError, FolderError) as error:
            raise LogsUnavailableError(f"{error}. Try again in a moment.") from error
        if printed is None:
            return self._saved_or_nothing(job, attempt)
        return printed

    def _saved_or_nothing(self, job: Job, attempt: int) -> str:
        try:
            return self._folders.read_log(job.job_id, attempt) or ""
        except FolderError as error:
            raise LogsUnavailableError(f"{error}. Try again in a moment.") from error

    def _read_from_ray(self, name: str) -> str | None:
        """Ray gives a log only as a whole, so a reading is shared for a moment."""
        with self._lock:
            read_at, printed = self._cache.get(name, (0.0, None))
            if time.monotonic() - read_at < _CACHE_SECONDS:
                return printed
            printed = self._launcher.read_log(name)
            while len(self._cache) >= _CACHE_ENTRIES:
                self._cache.pop(next(iter(self._cache)))
            self._cache[name] = (time.monotonic(), printed)
            return printed


def is_log_whole(job: Job) -> bool:
    """Whether a job is over and nothing more will be read of what it said."""
    if not job.state.is_terminal or job.finished_at is None:
        return False
    return job.is_log_saved or datetime.now(UTC) - job.finished_at > _LAST_LINES_PATIENCE


def _tail(printed: str, lines: int) -> str:
    # Not splitlines: it would take form feeds and other oddities of a log for line ends.
    ending = "\n" if printed.endswith("\n") else ""
    return "\n".join(printed.removesuffix("\n").split("\n")[-lines:]) + ending
