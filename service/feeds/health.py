"""Whether this replica can do its work, part by part.

What takes a replica out of service is what another replica may have: the database, and threads of its own. That the one
that reconciles is late is nobody's who answers requests, and as true of all of them: it is told, and is no reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from service.errors import Fault, NotReadyError
from service.feeds.interfaces import LedgerHealth
from service.interfaces import JobStore
from service.records import ClusterStatus
from service.settings import Settings

log = structlog.get_logger(__name__)

LEADER_PATIENCE_SECONDS = 60.0
"""A leader that began no round for so long, and for ten of its intervals, is late."""
WARN_SECONDS = 60.0
"""Between two warnings of that."""
CACHE_SECONDS = 2.0
"""How long an answer of the database's serves all who ask."""


@dataclass(frozen=True)
class Part:
    """One of the things the service needs."""

    is_there: bool
    is_needed: bool
    detail: str


class ServiceHealth:
    """Looks at each part; many probes cost the database no more than one."""

    def __init__(
        self,
        ledger: LedgerHealth,
        store: JobStore,
        settings: Settings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        own_fault: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`own_fault`: what is wrong with this replica's own threads, if anything is."""
        self._own_fault = own_fault
        self._warned_at: float | None = None
        self._ledger = ledger
        self._store = store
        self._settings = settings
        self._now = now
        self._seen: tuple[float, str | None, str | None] | None = None
        self._lock = threading.Lock()

    def check(self) -> dict[str, Part]:
        """Each part by name.

        Raises:
            NotReadyError: one that is needed is not there; each is named with its state.
        """
        parts = self.parts()
        if all(part.is_there or not part.is_needed for part in parts.values()):
            return parts
        absent = {name: part for name, part in parts.items() if part.is_needed and not part.is_there}
        faults = [Fault(f"/parts/{name}", "must be there", part.detail) for name, part in absent.items()]
        raise NotReadyError(" ".join(f"{name}: {part.detail}" for name, part in parts.items()), faults)

    def parts(self) -> dict[str, Part]:
        """Each part by name."""
        write_error, form_error = self._database()
        parts = {
            "database": Part(write_error is None, True, write_error or "It takes writes."),
            "migrations": Part(form_error is None, True, form_error or "The tables have what this version needs."),
        }
        if write_error is not None:
            return self._without_database(parts, write_error)
        try:
            status = self._store.cluster_status()
        except Exception as error:  # noqa: BLE001 - it went away since it was last looked at
            return self._without_database(parts, f"It cannot be read: {type(error).__name__}.")
        return parts | {"reconciler": self._reconciler(), "leader": self._leader(status), "ray": self._ray(status)}

    def _without_database(self, parts: dict[str, Part], error: str) -> dict[str, Part]:
        unknown = "Unknown without the database."
        gone = {"leader": Part(False, False, unknown), "ray": Part(False, self._needs_ray, unknown)}
        return parts | {"database": Part(False, True, error), "reconciler": self._reconciler()} | gone

    @property
    def _needs_ray(self) -> bool:
        return not self._settings.ready_without_ray

    def _database(self) -> tuple[str | None, str | None]:
        """What is wrong with writing, and with the tables. Beside each other, probes wait for one answer."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen[0] > CACHE_SECONDS:
                self._seen = (time.monotonic(), *self._ask_database())
            return self._seen[1], self._seen[2]

    def _ask_database(self) -> tuple[str | None, str | None]:
        # By the error's kind alone: its words can hold the address and the user's name.
        try:
            behind = self._ledger.missing_migrations()
            form_error = "The tables are of an older version; `electra migrate` brings them up." if behind else None
        except Exception as error:  # noqa: BLE001 - whatever a driver raises
            form_error = f"The tables cannot be read: {type(error).__name__}."
        try:
            self._ledger.check_writable()
        except Exception as error:  # noqa: BLE001 - whatever a driver raises
            return f"It cannot be written: {type(error).__name__}.", form_error
        return None, form_error

    def _reconciler(self) -> Part:
        fault = self._own_fault()
        return Part(fault is None, True, fault or "This replica reconciles, or is ready to take over.")

    def _leader(self, status: ClusterStatus | None) -> Part:
        if status is None:
            return Part(False, False, "No replica has made a round yet.")
        silent_seconds = (self._now() - status.reconciled_at).total_seconds()
        if silent_seconds > max(LEADER_PATIENCE_SECONDS, 10 * self._settings.reconcile_interval_seconds):
            self._warn(silent_seconds)
            return Part(False, False, f"No replica has begun a round for {silent_seconds:.0f} seconds.")
        return Part(True, False, "The replica that holds the lease makes its rounds.")

    def _warn(self, silent_seconds: float) -> None:
        """Once in a while, however often is asked."""
        if self._warned_at is None or time.monotonic() - self._warned_at >= WARN_SECONDS:
            self._warned_at = time.monotonic()
            log.warning("reconcile_lag", seconds=round(silent_seconds))

    def _ray(self, status: ClusterStatus | None) -> Part:
        if status is None:
            return Part(False, self._needs_ray, "Nobody has looked yet.")
        if not status.is_ray_reachable:
            return Part(False, self._needs_ray, status.ray_error or "Ray does not answer.")
        return Part(True, self._needs_ray, "Ray answers.")
