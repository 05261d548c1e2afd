"""Prepared corpora in the storage: their size, their users, and when they were last used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from pipelines import storage
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.storage.uses import ArtifactFolder, look_at, look_at_notes
from service.errors import CorpusNotFoundError, StorageUnavailableError
from service.interfaces import JobStore
from service.records import Job
from service.settings import Settings

log = structlog.get_logger(__name__)

FOLDER = "corpora"
MAX_LOOKS = 200
"""At folders, for one request; a page that is short for it still has a cursor."""
MAX_USES = 1000
"""Of a corpus so many of those who used it last are looked up."""
MAX_REMEMBERED = 512


@dataclass(frozen=True)
class CorpusUse:
    """A job that uses a corpus, or has."""

    job: Job
    began_at: datetime
    """When it last took the corpus up: the newest attempt's."""

    @property
    def last_at(self) -> datetime:
        """Until when it is known to have been used: the job's end, of one that is over."""
        ended = self.job.finished_at
        return self.began_at if ended is None else max(self.began_at, ended)


@dataclass(frozen=True)
class StoredCorpus:
    """A complete corpus."""

    corpus: PreparedCorpus
    size_bytes: int
    created_at: datetime
    last_used_at: datetime
    uses: Sequence[CorpusUse]
    """Of jobs that the principal sees, the newest first."""


class Corpora:
    """Corpora that were used by jobs of projects one sees; administrators of all projects see the others too."""

    def __init__(self, store: JobStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._remembered: dict[str, tuple[datetime, PreparedCorpus, int]] = {}
        """Digest to when it was completed, what it is and its size: a complete corpus does not change."""

    def page(
        self, visible: frozenset[str] | None, limit: int, cursor: str | None
    ) -> tuple[list[StoredCorpus], str | None]:
        """Corpora by digest, and the digest to go on after.

        Args:
            visible: projects; None for all.
            limit: corpora at most.
            cursor: the last digest of the page before.

        Raises:
            StorageUnavailableError: the storage does not answer.
        """
        found: list[StoredCorpus] = []
        last = ""
        try:
            digests = [digest for digest in self._digests() if cursor is None or digest > cursor]
            for number, digest in enumerate(digests):
                if len(found) == limit or number == MAX_LOOKS:
                    return found, last
                last = digest
                one = self._read(digest, visible)
                if one is not None:
                    found.append(one)
        except storage.StorageError as error:
            raise StorageUnavailableError(f"{error}. Try again in a moment.") from error
        return found, None

    def get(self, digest: str, visible: frozenset[str] | None) -> StoredCorpus:
        """One corpus.

        Raises:
            CorpusNotFoundError: there is none, or none that a job of a visible project uses.
            StorageUnavailableError: the storage does not answer.
        """
        try:
            found = self._read(digest, visible)
        except storage.StorageError as error:
            raise StorageUnavailableError(f"{error}. Try again in a moment.") from error
        if found is None:
            raise CorpusNotFoundError(digest)
        return found

    def _digests(self) -> list[str]:
        uris = storage.list_directory(storage.join(self._settings.storage_uri, FOLDER))
        return [uri.rstrip("/").rpartition("/")[2] for uri in uris]

    def _read(self, digest: str, visible: frozenset[str] | None) -> StoredCorpus | None:
        uri = storage.join(self._settings.storage_uri, FOLDER, digest)
        folder = look_at_notes(uri)
        if folder.completed_at is None:
            return None
        uses = self._uses(folder.uses)
        shown = [use for use in uses if visible is None or use.job.project in visible]
        if visible is not None and not shown:
            return None
        try:
            corpus, size_bytes = self._complete(digest, uri, folder.completed_at)
        except storage.StorageError as error:  # of another version, or being deleted at this moment
            log.warning("corpus_not_read", digest=digest, reason=error.reason)
            return None
        # When projects that one does not see used it is theirs to tell.
        last = (
            last_use(folder, uses) if visible is None else max([folder.completed_at, *(use.last_at for use in shown)])
        )
        return StoredCorpus(corpus, size_bytes, folder.completed_at, last, shown)

    def _complete(self, digest: str, uri: str, completed_at: datetime) -> tuple[PreparedCorpus, int]:
        """What it is, and its bytes: a walk over all of its files, made once."""
        known = self._remembered.get(digest)
        if known is None or known[0] != completed_at:
            known = (completed_at, PreparedCorpus.read(uri), look_at(uri).size_bytes)
            self._remembered.pop(digest, None)
            while len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.pop(next(iter(self._remembered)), None)
            self._remembered[digest] = known
        return known[1], known[2]

    def _uses(self, notes: Mapping[str, datetime]) -> list[CorpusUse]:
        newest = sorted(notes.items(), key=lambda note: note[1], reverse=True)[:MAX_USES]
        jobs = ((self._store.get(job_id), at) for job_id, at in newest)
        uses = [CorpusUse(job, at) for job, at in jobs if job is not None]
        return sorted(uses, key=lambda use: use.began_at, reverse=True)


def last_use(folder: ArtifactFolder, uses: Sequence[CorpusUse]) -> datetime:
    """When a complete artifact was last used: no earlier than it was made."""
    assert folder.completed_at is not None
    return max([folder.completed_at, *folder.uses.values(), *(use.last_at for use in uses)])
