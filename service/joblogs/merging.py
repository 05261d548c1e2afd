"""Lines of several sources laid into one another by their times, from any place on, and no more than can be borne."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pipelines.specs.log_lines import LEVELS, Dropped, PartKey, part_key
from service.joblogs.cursors import Position
from service.joblogs.lines import KeptLine, parse_line
from service.joblogs.parts import LogParts, PartFile, SourceFiles

MAX_READ_BYTES = 24 * 1024 * 1024
"""Read for one answer."""
_CLOCKS_APART = timedelta(minutes=10)
"""How far the clocks of two machines may be apart without a line being passed over."""
_MARKER_LINE = 10**9
"""Stands in for the line number behind the word on what was deleted."""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class LineFilter:
    """Which lines are wanted."""

    level: str = "debug"
    """And all above."""
    contains: str = ""
    """Plain text, without regard to upper and lower case."""
    since: datetime | None = None
    until: datetime | None = None

    def takes(self, line: KeptLine) -> bool:
        """Whether a line is wanted."""
        if LEVELS[line.level] < LEVELS[self.level]:
            return False
        if self.since is not None and line.time < self.since:
            return False
        if self.until is not None and line.time > self.until:
            return False
        return not self.contains or self.contains.casefold() in line.searched


@dataclass(frozen=True)
class FoundLine:
    """A line, and the place behind it."""

    line: KeptLine
    position: Position


@dataclass(frozen=True)
class Merged:
    """Some lines in order."""

    lines: list[FoundLine]
    positions: Mapping[str, Position]
    """Behind all that was looked at."""
    has_more: bool
    is_truncated: bool
    """Whether reading ended for `MAX_READ_BYTES` and not for the number of lines."""


class Reading:
    """One answer's worth of reading."""

    def __init__(self, parts: LogParts, wanted: LineFilter, limit: int, max_bytes: int | None = None) -> None:
        self._parts = parts
        self._wanted = wanted
        self._limit = limit
        self._bytes_left = MAX_READ_BYTES if max_bytes is None else max_bytes
        self._is_exhausted = False
        self.lines: list[FoundLine] = []

    @property
    def is_spent(self) -> bool:
        """Whether no further sources should be read for this answer."""
        return self._bytes_left <= 0

    def merge(self, sources: Iterable[SourceFiles], positions: Mapping[str, Position]) -> Merged:
        """Lines behind the given positions, by time; each source in its own order.

        Raises:
            LogsUnavailableError: the storage does not answer.
        """
        reached = dict(positions)
        heap: list[tuple[datetime, str, FoundLine, Iterator[FoundLine]]] = []
        for source in sources:
            self._push(heap, source.name, self._lines_of(source, positions.get(source.name)), _EPOCH)
        while heap:
            if len(self.lines) >= self._limit or self._is_exhausted:
                return Merged(self.lines, reached, True, self._is_exhausted)
            time, name, found, rest = heapq.heappop(heap)
            reached[name] = found.position
            if self._wanted.takes(found.line):
                self.lines.append(found)
            self._push(heap, name, rest, time)
        return Merged(self.lines, reached, self._is_exhausted, self._is_exhausted)

    def _push(
        self,
        heap: list[tuple[datetime, str, FoundLine, Iterator[FoundLine]]],
        name: str,
        rest: Iterator[FoundLine],
        earliest: datetime,
    ) -> None:
        found = next(rest, None)
        if found is not None:
            # A source whose clock was set back keeps its order: a line is never laid before the one it followed.
            heapq.heappush(heap, (max(found.line.time, earliest), name, found, rest))

    def _lines_of(self, source: SourceFiles, after: Position | None) -> Iterator[FoundLine]:
        is_first = True
        last_time = _EPOCH
        for entry in self._entries(source, after):
            if isinstance(entry, FoundLine):
                yield entry
                continue
            start = after.line if after is not None and after.key == entry.key else 0
            # The first lines of each source are always read: without them there is no order. So each answer gets on.
            if not is_first and entry.size_bytes > self._bytes_left:
                self._is_exhausted = True
                return
            content = self._parts.read(entry)
            self._bytes_left -= len(content)
            for number, raw in enumerate(content.removesuffix(b"\n").split(b"\n") if content else [], 1):
                # An empty line says nothing, and is counted all the same: places are numbers of lines.
                if number > start and raw.strip():
                    line = parse_line(raw, source.name, max(last_time, entry.key.started_at))
                    last_time = max(last_time, line.time)
                    is_first = False
                    yield FoundLine(line, Position(entry.key, number))

    def _entries(self, source: SourceFiles, after: Position | None) -> Iterator[PartFile | FoundLine]:
        """Parts that hold lines behind a position, and the word on those that were deleted, in their order."""
        dropped = self._parts.dropped(source)
        last = part_key(dropped.last) if dropped is not None else None
        is_marker_due = last is not None and (after is None or after < Position(last, _MARKER_LINE))
        for part, following in zip(source.parts, (*source.parts[1:], None), strict=True):
            if is_marker_due and dropped is not None and last is not None and part.key > last:
                is_marker_due = False
                yield _marker(source.name, dropped, last, part.key.started_at)
            if part.key == last or (after is not None and part.key < after.key):
                continue
            if self._wanted.until is not None and part.key.started_at > self._wanted.until + _CLOCKS_APART:
                return
            if following is not None and self._is_before(following):
                continue
            yield part
        if is_marker_due and dropped is not None and last is not None:
            yield _marker(source.name, dropped, last, dropped.until)

    def _is_before(self, following: PartFile) -> bool:
        """Whether all lines before this part are older than wanted."""
        since = self._wanted.since
        return since is not None and following.key.started_at < since - _CLOCKS_APART


def _marker(source: str, dropped: Dropped, last: PartKey, time: datetime) -> FoundLine:
    message = f"{dropped.lines} lines were deleted here: this log is longer than ELECTRA_JOB_LOG_MAX_BYTES allows"
    fields = {"num_lines": dropped.lines, "size_bytes": dropped.size_bytes}
    line = KeptLine(time, "warning", source, "service.joblogs", message, fields)
    return FoundLine(line, Position(last, _MARKER_LINE))
