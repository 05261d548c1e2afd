"""Who uses a prepared artifact, and what of it can be told from one look at its folder.

A job writes `uses/{job_id}.json` into an artifact's folder before it looks whether the artifact is complete. Whoever
wants to delete it takes the manifest away first and looks at the uses afterwards: so either the job finds no complete
artifact, and makes it anew, or the other finds the job, and puts the manifest back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pipelines import storage
from pipelines.storage.artifacts import MANIFEST_FILE
from pipelines.storage.remote import object_store, telling

USES_FOLDER = "uses"
SOURCES_FILE = "sources.json"
"""What a corpus was made of; it stays when the corpus is deleted, for models that were trained on it."""
_ATTEMPT = re.compile(r"-a[0-9]+$")
_NOTE = re.compile(rf"{USES_FOLDER}/([A-Za-z0-9][A-Za-z0-9._-]*)\.json")


class StoredFile(NamedTuple):
    """A file below a folder."""

    path: str
    """From the folder on."""
    size_bytes: int
    modified_at: datetime
    """By the storage's clock."""


@dataclass(frozen=True)
class ArtifactFolder:
    """What one listing of an artifact's folder says."""

    files: tuple[StoredFile, ...]
    completed_at: datetime | None
    """When its manifest was written; None where it is not complete."""
    uses: Mapping[str, datetime]
    """Ids of jobs to when they last began to use it."""

    @property
    def size_bytes(self) -> int:
        """Of all that would be deleted."""
        return sum(file.size_bytes for file in self.files if is_disposable(file.path))


def note_use(artifact_uri: str, owner: str) -> None:
    """Write down that a job uses an artifact from now on, which need not be there yet.

    Args:
        artifact_uri: its folder.
        owner: the job's id, with or without the attempt behind it.

    Raises:
        StorageError: the storage cannot be written.
    """
    job_id = _ATTEMPT.sub("", owner)
    # When, the storage tells by the file.
    storage.write_json(storage.join(artifact_uri, USES_FOLDER, f"{job_id}.json"), {"job_id": job_id})


def look_at(artifact_uri: str) -> ArtifactFolder:
    """One listing of a folder, which need not be there.

    Raises:
        StorageError: the storage does not answer.
    """
    files = list_files(artifact_uri)
    done = [file.modified_at for file in files if file.path == MANIFEST_FILE]
    notes = ((_NOTE.fullmatch(file.path), file) for file in files)
    uses = {match[1]: file.modified_at for match, file in notes if match is not None}
    return ArtifactFolder(files, done[0] if done else None, uses)


def look_at_notes(artifact_uri: str) -> ArtifactFolder:
    """`look_at` without a walk over all that was prepared: its files are the manifest and the notes alone.

    Raises:
        StorageError: the storage does not answer.
    """
    notes = [
        note._replace(path=f"{USES_FOLDER}/{note.path}")
        for note in list_files(storage.join(artifact_uri, USES_FOLDER))
        if "/" not in note.path
    ]
    manifest = _stored_file(artifact_uri, MANIFEST_FILE)
    uses = {match[1]: note.modified_at for note in notes if (match := _NOTE.fullmatch(note.path)) is not None}
    files = (*([] if manifest is None else [manifest]), *notes)
    return ArtifactFolder(files, None if manifest is None else manifest.modified_at, uses)


def _stored_file(folder: str, name: str) -> StoredFile | None:
    path = storage.local_path(folder)
    if path is not None:
        try:
            status = (path / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredFile(name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
    from pyarrow import fs

    uri = storage.join(folder, name)
    with telling(uri):
        filesystem, key = object_store(uri)
        info = filesystem.get_file_info(key)
    if info.type != fs.FileType.File:
        return None
    return StoredFile(name, int(info.size), info.mtime or datetime.fromtimestamp(0, UTC))


def is_disposable(path: str) -> bool:
    """Whether a file of an artifact goes with it: not the notes of its uses, nor what it was made of."""
    return not path.startswith(f"{USES_FOLDER}/") and path != SOURCES_FILE


def list_files(uri: str) -> tuple[StoredFile, ...]:
    """Every file below a folder, hidden ones too, by path; none where there is no such folder. Links are files here,
    and are not followed out of it.

    Raises:
        StorageError: the storage does not answer.
    """
    path = storage.local_path(uri)
    if path is None:
        return tuple(sorted(_remote_files(uri)))
    if path.is_symlink():
        return ()
    found = []
    for folder, folders, names in os.walk(path):
        here = Path(folder)
        for file in (
            *(here / name for name in names),
            *(here / name for name in folders if (here / name).is_symlink()),
        ):
            try:
                status = file.lstat()
            except FileNotFoundError:  # deleted while it was listed
                continue
            moment = datetime.fromtimestamp(status.st_mtime, UTC)
            found.append(StoredFile(file.relative_to(path).as_posix(), status.st_size, moment))
    return tuple(sorted(found))


def _remote_files(uri: str) -> list[StoredFile]:
    from pyarrow import fs

    with telling(uri):
        filesystem, key = object_store(uri)
        infos = filesystem.get_file_info(fs.FileSelector(key, recursive=True, allow_not_found=True))
    start = len(key.rstrip("/")) + 1
    return [
        StoredFile(info.path[start:], int(info.size), info.mtime or datetime.fromtimestamp(0, UTC))
        for info in infos
        if info.type == fs.FileType.File
    ]
