"""The words of `/v1/jobs/{job_id}/logs`: what is asked of the logs of jobs, and what is answered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from pipelines.specs.log_lines import DRIVER_OUTPUT
from service.http.schemas import Answer, Request

# Within these, moments can be reckoned with.
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
LogMoment = Annotated[AwareDatetime, Field(ge=_FIRST, le=_LAST)]
LogSourceName = Annotated[str, Field(pattern=r"^(\*|[a-z0-9][a-z0-9._-]{0,79}\*?)$")]


class LogQuery(Request):
    """Which part of a log."""

    attempt: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """The current one when absent; events begin with the first."""
    tail: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Only so many lines from the end; not for events."""
    follow: bool = False
    """Send server-sent events until the job ends."""
    source: Annotated[list[LogSourceName], Field(max_length=64, default_factory=list)]
    """Processes whose own logs are wanted, such as `driver`, `rank-0` or `seed-*`; `*` for all. `driver-output`, by
    itself, is what Ray's driver printed, which is also what is sent when none of the fields from here on is given."""
    level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    """This level and those above."""
    contains: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Plain text that must stand in the line, without regard to upper and lower case."""
    since: LogMoment | None = None
    """No line before."""
    until: LogMoment | None = None
    """No line after."""
    limit: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Lines a page; 200 when absent."""
    cursor: Annotated[str, Field(max_length=16_000)] | None = None
    """`next_cursor` of the page before."""
    format: Literal["text", "json", "jsonl"] | None = None
    """How a process's own lines are sent: as text when absent, or as a page in JSON, or as lines of JSON. Of the last
    and of text, `X-Next-Cursor` leads on."""

    @property
    def is_of_processes(self) -> bool:
        """Whether the lines that processes keep are asked for, and not what the driver printed."""
        if self.source == [DRIVER_OUTPUT]:
            return False
        asked = (self.level, self.contains, self.since, self.until, self.limit, self.cursor, self.format)
        return bool(self.source) or any(value is not None for value in asked)


class LogSourceQuery(Request):
    """Whose logs to list."""

    attempt: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """The current one when absent."""


class LogRecord(Answer):
    """One line that a process of a job logged."""

    time: AwareDatetime
    level: str
    """`debug`, `info`, `warning`, `error` or `critical`."""
    source: str
    """The process: `driver`, `rank-0`, `seed-sst-2-1`, …"""
    logger: str
    """Who in it; `stdout`, `stderr`, `warnings` and `uncaught` for what was said past any logger."""
    message: str
    fields: dict[str, Any] = Field(default_factory=dict)
    """What came with it."""


class LogPage(Answer):
    """Some lines of one attempt, oldest first."""

    items: tuple[LogRecord, ...]
    truncated: bool = False
    """The page ends early, as so much had to be read for it: `next_cursor` goes on there."""
    next_cursor: str | None = None
    """Give it as `cursor` for the lines after these; absent at the end."""


class LogSource(Answer):
    """A process of an attempt that keeps a log of its own."""

    source: str
    started_at: AwareDatetime | None
    """When its first line was written, by its machine's clock."""
    size_bytes: int
    """In storage."""


class LogSourceList(Answer):
    """All of them, by name."""

    attempt: int
    """0 before the first."""
    items: tuple[LogSource, ...]
