"""The export of a registered version: the folder in its job's directory, and nothing beside it."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from pipelines import storage
from pipelines.specs.documents import JobResult, ModelVersion
from pipelines.storage.uses import StoredFile, list_files
from service.access.places import canonical, is_within
from service.errors import ExportNotFoundError, StorageUnavailableError
from service.interfaces import FolderError, JobFolders, JobStore
from service.jobs.namespaces import project_of
from service.records import Job
from service.settings import Settings
from service.shelf.archives import Archives
from service.shelf.registry import RegisteredVersion
from service.shelf.tar_stream import Member

EXPORTS_FOLDER = "exports"


@dataclass(frozen=True)
class Export:
    """The files of an export, as members of an archive."""

    name: str
    """Of the archive, without its ending; also the folder in it."""
    members: Sequence[Member]


class Exports:
    """Finds the exports of versions that jobs of ours have made."""

    def __init__(self, store: JobStore, folders: JobFolders, settings: Settings) -> None:
        self._store = store
        self._folders = folders
        self._settings = settings
        self.archives = Archives(settings.max_export_downloads)
        """That are being sent."""

    def find(self, version: RegisteredVersion) -> Export:
        """The files of a version's export.

        Raises:
            ExportNotFoundError: no job of ours made it, or its folder is gone.
            StorageUnavailableError: the storage does not answer.
        """
        try:
            made = self.made_version(version)
            if made is None:
                raise ExportNotFoundError(f"{_named(version)} was made by no job of this service's storage.")
            folder = self._folder_of(version, made)
            files = list_files(folder)
        except (FolderError, storage.StorageError) as error:
            raise StorageUnavailableError(f"{error}. Try again in a moment.") from error
        if not files:
            raise ExportNotFoundError(f"The export of {_named(version)} is no longer in the storage.")
        name = f"{version.name}-{version.version}"
        return Export(name, [_member(folder, name, file) for file in files if not _is_link(folder, file)])

    def made_version(self, version: RegisteredVersion) -> ModelVersion | None:
        """What its job said of a version; None where no job of its project says that it made it.

        Raises:
            FolderError: the storage does not answer.
        """
        result = self._result_of(version)
        for made in () if result is None else result.models:
            if (made.name, made.version) == (version.name, str(version.version)):
                return made
        return None

    def job_of(self, version: RegisteredVersion) -> Job | None:
        """The job that made it, of the model's own project: a tag of MLflow's can say anything."""
        job = None if version.job_id is None else self._store.get(version.job_id)
        # Without keys names are nobody's: a job of `default` registers whatever it is called.
        is_own = job is not None and (self._settings.access == "open" or job.project == project_of(version.name))
        return job if is_own else None

    def _result_of(self, version: RegisteredVersion) -> JobResult | None:
        job = self.job_of(version)
        if job is None:
            return None
        return job.result if job.result is not None else self._folders.read_result(job.job_id)

    def _folder_of(self, version: RegisteredVersion, made: ModelVersion) -> str:
        """The folder that the result names, if it lies where exports of that job do."""
        assert version.job_id is not None
        exports = canonical(storage.join(self._settings.job_uri(version.job_id), EXPORTS_FOLDER))
        try:
            folder = canonical(storage.normalise(made.export_uri))
        except (ValueError, storage.StorageError):
            folder = ""
        if folder == exports or not is_within(folder, exports):
            raise ExportNotFoundError(f"The export of {_named(version)} lies outside its job's folder.")
        return folder


def _member(folder: str, name: str, file: StoredFile) -> Member:
    opener = functools.partial(_open, storage.join(folder, file.path))
    return Member(f"{name}/{file.path}", file.size_bytes, opener)


def _open(uri: str) -> IO[bytes]:
    """A file that was listed as one. A link that has taken its place since is not followed."""
    path = storage.local_path(uri)
    if path is None:
        return storage.open_input(uri)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    return os.fdopen(descriptor, "rb")


def _is_link(folder: str, file: StoredFile) -> bool:
    path = storage.local_path(storage.join(folder, file.path))
    return path is not None and path.is_symlink()


def _named(version: RegisteredVersion) -> str:
    return f"{version.name!r} version {version.version}"
