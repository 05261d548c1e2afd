"""What both parts of a cleaning share: they look at one thing after the other, and delete it unless it is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from pipelines import storage
from pipelines.errors import PipelineError
from service.interfaces import FolderError, JobFolders, JobStore
from service.settings import Settings
from service.shelf.clean_records import CleanedItem, CleanedKind, CleanWish, Outcome
from service.shelf.needs import Needs
from service.shelf.withdrawing import StillNeededError, withdraw

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Candidate:
    """Something that a rule says may go, unless somebody needs it."""

    kind: CleanedKind
    path: str
    size_bytes: int
    why: str
    markers: tuple[str, ...] = ()
    """Files by which it is complete."""
    others: tuple[str, ...] | None = None
    """The other files that go; None for the whole folder."""


class Sweeper:
    """Looks, and deletes or says that it would."""

    def __init__(
        self,
        store: JobStore,
        folders: JobFolders,
        settings: Settings,
        wish: CleanWish,
        now: datetime,
    ) -> None:
        self.store = store
        self.folders = folders
        self.settings = settings
        self.wish = wish
        self.now = now

    def uri(self, path: str) -> str:
        """Of something below the storage."""
        return storage.join(self.settings.storage_uri, path)

    def needs(self) -> Needs:
        """What jobs need now."""
        return Needs(self.store, self.folders, self.settings)

    def names_in(self, path: str) -> list[str]:
        """Names of what lies directly in a folder below the storage."""
        return [uri.rstrip("/").rpartition("/")[2] for uri in storage.list_directory(self.uri(path))]

    def sweep(self, candidate: Candidate, need: Callable[[], str | None]) -> CleanedItem:
        """Delete one thing unless it is needed; `need` is asked before and in between."""
        try:
            reason = need()
            if reason is not None:
                return self._item(candidate, "kept", reason)
            if self.wish.dry_run:
                return self._item(candidate, "would_delete", candidate.why)
            withdraw(self.uri(candidate.path), candidate.markers, candidate.others, need)
        except StillNeededError as error:
            return self._item(candidate, "kept", str(error))
        except (PipelineError, FolderError, OSError) as error:
            log.warning("not_cleaned", path=candidate.path, reason=str(error)[:300])
            return self._item(candidate, "failed", str(error)[:300])
        log.info("cleaned", path=candidate.path, size_bytes=candidate.size_bytes, reason=candidate.why)
        return self._item(candidate, "deleted", candidate.why)

    @staticmethod
    def kept(kind: CleanedKind, path: str, size_bytes: int, reason: str) -> CleanedItem:
        """Something that a rule keeps."""
        return CleanedItem(kind=kind, path=path, size_bytes=size_bytes, outcome="kept", reason=reason)

    @staticmethod
    def _item(candidate: Candidate, outcome: Outcome, reason: str) -> CleanedItem:
        return CleanedItem(
            kind=candidate.kind,
            path=candidate.path,
            size_bytes=candidate.size_bytes,
            outcome=outcome,
            reason=reason,
        )
