"""The files of one source: parts of lines, kept within a limit by deleting the middle."""

from __future__ import annotations

import secrets
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines import storage
from pipelines.specs.log_lines import DROPPED_FILE, MAX_SOURCES, PART_BYTES, Dropped, PartKey, part_key, part_token


@dataclass
class _Part:
    key: PartKey
    size_bytes: int
    num_lines: int | None
    """None of another process's."""


class PartWriter:
    """Writes parts into the folder of a source, after those that lie there. For one thread.

    Half of the limit goes to the first lines and half to the last. Every method may raise `StorageError`; it may be
    called again, and nothing is written twice.
    """

    def __init__(self, uri: str, max_bytes: int) -> None:
        """`uri`: the source's folder, below the attempt's. `max_bytes`: of all its parts together."""
        self._uri = uri
        self._max_bytes = max_bytes
        self._part_bytes = max(1, min(PART_BYTES, max_bytes // 8))
        self._process = secrets.token_hex(3)
        self._closed: list[_Part] = []
        self._dropped: Dropped | None = None
        self._next_number = 1
        self._key: PartKey | None = None
        self._content: list[bytes] = []
        self._size_bytes = 0
        self._is_unwritten = False
        self._is_open = False

    def open(self) -> bool:
        """Look at what lies there; False if the attempt has so many sources that this one may not write."""
        if self._is_open:
            return True
        if storage.exists(self._uri):
            names = {name for name in map(_name, storage.list_directory(self._uri)) if part_key(name)}
            # What is begun by its first bytes is all there: files appear whole.
            sizes = {_name(file.uri): file.size_bytes for file in (storage.expand(self._uri) if names else ())}
            keys = sorted(key for key in map(part_key, sizes) if key is not None)
            self._closed = [_Part(key, sizes[key.file_name], None) for key in keys]
            self._next_number = keys[-1].number + 1 if keys else 1
            self._dropped = self._read_dropped()
        elif len(storage.list_directory(self._uri.rpartition("/")[0])) >= MAX_SOURCES:
            return False
        self._is_open = True
        return True

    def write(self, lines: deque[bytes]) -> None:
        """Write lines, and take them out of the queue as they are safe here; written or not, they are tried again."""
        while lines or self._is_unwritten:
            while lines and (not self._content or self._size_bytes + len(lines[0]) <= self._part_bytes):
                line = lines.popleft()
                self._content.append(line)
                self._size_bytes += len(line)
                self._is_unwritten = True
            if self._is_unwritten:
                self._write_open()
            if lines:
                self._close_open()
            self._make_room()

    def _write_open(self) -> None:
        if self._key is None:
            self._key = PartKey(self._next_number, part_token(time.time(), self._process))
        storage.write_bytes(storage.join(self._uri, self._key.file_name), b"".join(self._content))
        self._is_unwritten = False

    def _close_open(self) -> None:
        assert self._key is not None
        self._closed.append(_Part(self._key, self._size_bytes, len(self._content)))
        self._next_number = self._key.number + 1
        self._key, self._content, self._size_bytes = None, [], 0

    def _make_room(self) -> None:
        while sum(part.size_bytes for part in self._closed) + self._size_bytes > self._max_bytes:
            place = self._num_head()
            if place >= len(self._closed):
                return
            self._drop(self._closed[place])
            del self._closed[place]

    def _num_head(self) -> int:
        """How many parts make the head, which is never deleted."""
        first = part_key(self._dropped.first) if self._dropped is not None else None
        if first is not None:
            return sum(part.key < first for part in self._closed)
        total = 0
        for place, part in enumerate(self._closed):
            total += part.size_bytes
            if total > self._max_bytes // 2:
                return place
        return len(self._closed)

    def _drop(self, part: _Part) -> None:
        uri = storage.join(self._uri, part.key.file_name)
        lines = part.num_lines
        if lines is None:
            lines = storage.read_bytes(uri).count(b"\n") if storage.exists(uri) else 0
        before = self._dropped
        dropped = Dropped(
            first=before.first if before else part.key.file_name,
            last=part.key.file_name,
            lines=lines + (before.lines if before else 0),
            size_bytes=part.size_bytes + (before.size_bytes if before else 0),
            until=datetime.now(UTC),
        )
        # First said, then done: what is missing is always accounted for.
        storage.write_bytes(storage.join(self._uri, DROPPED_FILE), dropped.model_dump_json().encode())
        storage.delete_tree(uri)
        self._dropped = dropped

    def _read_dropped(self) -> Dropped | None:
        uri = storage.join(self._uri, DROPPED_FILE)
        try:
            return Dropped.model_validate_json(storage.read_bytes(uri)) if storage.exists(uri) else None
        except ValueError:
            return None


def _name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]
