"""The files that a job's processes keep their logs in."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.specs.log_lines import (
    DROPPED_FILE,
    PART_BYTES,
    Dropped,
    PartKey,
    attempt_folder,
    is_source,
    part_key,
)
from service.errors import LogsUnavailableError
from service.joblogs.local_parts import LocalParts
from service.settings import Settings

_LISTING_ATTEMPTS = 3
_MAX_PART_BYTES = 4 * PART_BYTES
"""Read of one part; ours are at most `PART_BYTES` long."""


@dataclass(frozen=True)
class PartFile:
    """One part."""

    key: PartKey
    uri: str
    size_bytes: int
    identity: str
    """Changes when the content does."""


@dataclass(frozen=True)
class SourceFiles:
    """What one process has kept."""

    name: str
    parts: tuple[PartFile, ...]
    """In their order."""
    dropped_uri: str | None = None

    @property
    def state(self) -> tuple[str, ...]:
        """Changes when there is more to read."""
        return (*(part.identity for part in self.parts[-1:]), str(len(self.parts)))

    @property
    def size_bytes(self) -> int:
        """Of all parts."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def started_at(self) -> datetime | None:
        """When the first line was written, by the clock of that machine."""
        return self.parts[0].key.started_at if self.parts else None


class LogParts:
    """Reads below the folders of jobs, and only files whose names are those of parts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        path = storage.local_path(settings.storage_uri)
        self._local = None if path is None else LocalParts(path)

    def sources(self, job_id: str, attempt: int) -> Mapping[str, SourceFiles]:
        """What an attempt has kept until now, by source; empty where it has kept nothing.

        Raises:
            LogsUnavailableError: the storage does not answer.
        """
        base = storage.join(self._settings.job_uri(job_id), attempt_folder(attempt))
        parts: dict[str, list[PartFile]] = {}
        dropped: dict[str, str] = {}
        for file in self._files(base):
            name, _, file_name = file.uri.removeprefix(f"{base}/").partition("/")
            key = part_key(file_name)
            if not is_source(name):
                continue
            if key is not None:
                parts.setdefault(name, []).append(PartFile(key, file.uri, file.size_bytes, file.identity))
            elif file_name == DROPPED_FILE:
                dropped[name] = file.uri
        return {
            name: SourceFiles(name, tuple(sorted(found, key=lambda part: part.key)), dropped.get(name))
            for name, found in sorted(parts.items())
        }

    def read(self, part: PartFile) -> bytes:
        """A part; nothing of one that has been deleted since it was listed.

        Raises:
            LogsUnavailableError: the storage does not answer.
        """
        return self._read(part.uri)

    def dropped(self, source: SourceFiles) -> Dropped | None:
        """What a source has deleted; None if nothing.

        Raises:
            LogsUnavailableError: the storage does not answer.
        """
        if source.dropped_uri is None:
            return None
        try:
            return Dropped.model_validate_json(self._read(source.dropped_uri))
        except ValueError:
            return None

    def _files(self, base: str) -> list[storage.FoundFile]:
        for attempt in range(1, _LISTING_ATTEMPTS + 1):
            try:
                if self._local is not None:
                    return self._local.list_files(Path(base))
                return storage.expand(base) if storage.exists(base) and storage.list_directory(base) else []
            except (StorageError, OSError) as error:
                # The job deletes parts in the meantime, and a listing may stumble over one.
                if attempt == _LISTING_ATTEMPTS:
                    raise LogsUnavailableError(f"{error}. Try again in a moment.") from error
                time.sleep(0.05)
        raise AssertionError

    def _read(self, uri: str) -> bytes:
        try:
            if self._local is not None:
                return self._local.read(Path(uri), _MAX_PART_BYTES)
            with storage.open_input(uri) as stream:
                return stream.read(_MAX_PART_BYTES)
        except (StorageError, OSError) as error:
            try:
                is_gone = not storage.exists(uri)
            except (StorageError, OSError):
                is_gone = False
            if is_gone:
                return b""
            raise LogsUnavailableError(f"{error}. Try again in a moment.") from error
