"""The client's calls for what a job printed and what its processes logged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.client import connection
from service.client.connection import Connection, segment
from service.client.errors import ApiError, UnreachableError, is_passing
from service.http.log_schemas import LogPage, LogRecord, LogSourceList
from service.http.server_events import ServerEvent


@dataclass(frozen=True)
class LogLine:
    """A piece of a job's log as it is followed."""

    text: str
    event_id: str | None
    """Give it as `last_event_id` to go on from here."""


class LogCalls(Connection):
    """Part of `ElectraClient`."""

    def logs(self, job_id: str, *, attempt: int | None = None) -> str:
        """What a job has written so far: its last attempt, unless another is named."""
        return self._get(f"/v1/jobs/{segment(job_id)}/logs", params=_attempt(attempt)).text

    def log_page(
        self,
        job_id: str,
        *,
        attempt: int | None = None,
        sources: Sequence[str] = (),
        level: str | None = None,
        contains: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 200,
        cursor: str | None = None,
    ) -> LogPage:
        """One page of what the processes of a job logged in one attempt, oldest first.

        Args:
            job_id: of the job.
            attempt: the last one, unless another is named.
            sources: such as `rank-0` or `seed-*`; none for all.
            level: this one and those above.
            contains: plain text, without regard to upper and lower case.
            since: no line before.
            until: no line after.
            limit: lines, 1000 at most.
            cursor: `next_cursor` of the page before.
        """
        query = _log_query(attempt, sources, level, contains) | {"limit": limit, "format": "json"}
        optional = (("since", since and since.isoformat()), ("until", until and until.isoformat()), ("cursor", cursor))
        query |= {key: value for key, value in optional if value is not None}
        return self._read(LogPage, self._get(f"/v1/jobs/{segment(job_id)}/logs", params=query))

    def log_sources(self, job_id: str, *, attempt: int | None = None) -> LogSourceList:
        """The processes of a job that keep logs of their own: in its last attempt, unless another is named."""
        return self._read(
            LogSourceList, self._get(f"/v1/jobs/{segment(job_id)}/logs/sources", params=_attempt(attempt))
        )

    def follow_log_records(
        self,
        job_id: str,
        *,
        attempt: int | None = None,
        sources: Sequence[str] = (),
        level: str | None = None,
        contains: str | None = None,
    ) -> Iterator[LogRecord]:
        """What the processes of a job log, as they log it, until it ends; see `log_page`."""
        query = _log_query(attempt, sources, level, contains) | {"format": "jsonl"}
        for line in self._follow(job_id, query, None):
            yield self._checked(LogRecord.model_validate_json, "LogRecord", line.text)

    def follow_logs(
        self, job_id: str, *, attempt: int | None = None, last_event_id: str | None = None
    ) -> Iterator[LogLine]:
        """What a job writes, as it writes it, until it ends. Goes on where it was after a broken connection."""
        return self._follow(job_id, _attempt(attempt), last_event_id)

    def _follow(self, job_id: str, query: Mapping[str, Any], last_event_id: str | None) -> Iterator[LogLine]:
        heard_at = time.monotonic()
        while True:
            try:
                for event in self._stream(job_id, query, last_event_id):
                    heard_at = time.monotonic()
                    last_event_id = event.event_id or last_event_id
                    if event.name == "end":
                        return
                    if event.name == "message":
                        yield LogLine(event.data, last_event_id)
            except (UnreachableError, ApiError) as error:
                if not is_passing(error) or time.monotonic() - heard_at > self._stream_patience_seconds:
                    raise
            # The stream broke, or ended without saying that the log has: ask for the rest.
            time.sleep(connection.STREAM_RETRY_SECONDS)

    def _stream(self, job_id: str, query: Mapping[str, Any], last_event_id: str | None) -> Iterator[ServerEvent]:
        url = f"/v1/jobs/{segment(job_id)}/logs"
        return self._events_of(url, {**query, "follow": "true"}, last_event_id)


def _attempt(attempt: int | None) -> dict[str, Any]:
    return {} if attempt is None else {"attempt": attempt}


def _log_query(attempt: int | None, sources: Sequence[str], level: str | None, contains: str | None) -> dict[str, Any]:
    optional = (("source", list(sources) or None), ("level", level), ("contains", contains))
    return {**_attempt(attempt), **{key: value for key, value in optional if value is not None}}
