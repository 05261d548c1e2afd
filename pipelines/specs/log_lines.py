"""How the processes of a job keep their logs: names of folders and files. Pure.

    {job_uri}/logs/attempt-N/SOURCE/part-000001-1764000000123-3fa2c1.jsonl
    {job_uri}/logs/attempt-N/SOURCE/dropped.json

A part holds lines, one JSON object each, and is always written whole: the newest part of a process grows by being
written anew until it is full, all others never change. Its name says its place, when its first line was written
(milliseconds since 1970) and, at random, by which process: two processes that take each other for dead never write the
same file. `dropped.json` says what was deleted in the middle to stay within the limit.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
"""Names of levels, in order of weight."""
LOGS_FOLDER = "logs"
DROPPED_FILE = "dropped.json"
DRIVER_OUTPUT = "driver-output"
"""The source that is no folder: what Ray's driver printed."""
SOURCE_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,79}$"
PART_BYTES = 256 * 1024
"""Of a part that is full."""
MAX_LINE_BYTES = 64 * 1024
"""Of a line as it is kept, its end included."""
DEFAULT_SOURCE_BYTES = 8 * 1024 * 1024
"""Kept of one source in one attempt, unless set otherwise."""
SOURCE_BYTES_VARIABLE = "ELECTRA_JOB_LOG_MAX_BYTES"
"""The environment's word for it."""
MAX_SOURCES = 2000
"""Of one attempt; what else would write keeps nothing."""

_SOURCE = re.compile(SOURCE_PATTERN)
_PART = re.compile(r"part-([0-9]{6,9})-([0-9]{13}-[0-9a-f]{6})\.jsonl")
_NOT_OF_NAMES = re.compile(r"[^a-z0-9._-]+")


class PartKey(NamedTuple):
    """A part among those of its source, in their order."""

    number: int
    """Counted from 1."""
    token: str
    """Time and process."""

    @property
    def file_name(self) -> str:
        """As it lies in the folder of its source."""
        return f"part-{self.number:06d}-{self.token}.jsonl"

    @property
    def started_at(self) -> datetime:
        """When its first line was written, by the clock of the machine that did."""
        return datetime.fromtimestamp(int(self.token[:13]) / 1000, UTC)


def part_key(file_name: str) -> PartKey | None:
    """Of a file's name; None of one that is no part."""
    found = _PART.fullmatch(file_name)
    return None if found is None else PartKey(int(found[1]), found[2])


def part_token(started_at: float, process: str) -> str:
    """The token of a part: seconds since 1970, six hexadecimal digits."""
    return f"{max(0, min(int(started_at * 1000), 10**13 - 1)):013d}-{process}"


def attempt_folder(attempt: int) -> str:
    """Below a job's directory."""
    return f"{LOGS_FOLDER}/attempt-{attempt}"


def is_source(name: str) -> bool:
    """Whether it can name a source: such a name is one segment of a path, and never `.` or `..`."""
    return _SOURCE.fullmatch(name) is not None


def source_name(text: str) -> str:
    """A source's name made of any text; long ones end in a digest, so that they stay apart."""
    name = _NOT_OF_NAMES.sub("-", text.lower()).lstrip("._-") or "process"
    if len(name) <= 80:
        return name
    return f"{name[:69]}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


class Dropped(BaseModel):
    """Parts that were deleted between the head and the tail of a source."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    first: str
    """File name of the first of them."""
    last: str
    lines: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    until: AwareDatetime
    """When the last of them was full."""
