"""Cleaning the storage: by rules, one at a time, and never what a job or a registered model needs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from pipelines.storage import StorageError
from service.access.audit import AuditEntry, Caller
from service.errors import CleaningRunsError, StorageUnavailableError
from service.interfaces import JobFolders, JobStore
from service.settings import Settings
from service.shelf.clean_jobs import clean_jobs
from service.shelf.clean_prepared import clean_prepared
from service.shelf.clean_records import Cleaned, CleanedItem, CleanWish
from service.shelf.models import Models
from service.shelf.registry import Locks
from service.shelf.sweeping import Sweeper

log = structlog.get_logger(__name__)

LOCK_SECONDS = 600.0
"""Should a cleaning take longer, another may begin beside it: each artifact has a lease of its own besides."""


class Cleaning:
    """Deletes what is no longer used, or says what it would delete."""

    def __init__(
        self,
        store: JobStore,
        folders: JobFolders,
        models: Models,
        settings: Settings,
        locks: Locks,
        record: Callable[[AuditEntry], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`record` adds a row to the audit log."""
        self._store = store
        self._folders = folders
        self._models = models
        self._settings = settings
        self._locks = locks
        self._record = record
        self._now = now

    def run(self, wish: CleanWish, caller: Caller) -> Cleaned:
        """Look at all that the rules name, and delete what may go unless it is a dry run.

        Raises:
            CleaningRunsError: another cleaning is at it.
            StorageUnavailableError: the storage cannot be listed; what was deleted until then is in the audit log.
        """
        with self._locks.holding("clean", 0.0, LOCK_SECONDS) as is_held:
            if not is_held:
                raise CleaningRunsError("Somebody else cleans the storage now. Try again when they are through.")
            items: list[CleanedItem] = []
            try:
                sweeper = Sweeper(self._store, self._folders, self._settings, wish, self._now())
                if wish.unused_corpora_days is not None:
                    items.extend(clean_prepared(sweeper, wish.unused_corpora_days))
                if wish.checkpoints_to_keep is not None or wish.archived_jobs_days is not None:
                    items.extend(clean_jobs(sweeper, self._models.made_by))
            except StorageError as error:
                raise StorageUnavailableError(f"{error}. Try again in a moment.") from error
            finally:
                cleaned = Cleaned(items, wish.dry_run)
                self._keep_record(cleaned, caller)
            return cleaned

    def _keep_record(self, cleaned: Cleaned, caller: Caller) -> None:
        if cleaned.dry_run:
            caller.has_record = True  # it changed nothing
            return
        kinds = sorted({item.kind for item in cleaned.items if item.outcome == "deleted"})
        what = ", ".join(f"{sum(i.outcome == 'deleted' and i.kind == k for i in cleaned.items)} {k}" for k in kinds)
        size = cleaned.bytes_of("deleted")
        self._record(caller.entry("clean", what or "nothing", None, f"done: {size} bytes"))
        caller.has_record = True
