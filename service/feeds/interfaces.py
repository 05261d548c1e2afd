"""What feeds, metrics and the reconciler expect of the database beside jobs.

BackendError
└── LeaseLostError      another replica acts now; nothing was written
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from service.feeds.records import EventPage, JobFigures
from service.interfaces import BackendError


class LeaseLostError(BackendError):
    """The lease under which this was to be written is another's by now; nothing was written."""


class Lease(Protocol):
    """The right to act for all replicas, held by one of them for a while."""

    def try_hold(self) -> bool:
        """Take the lease if it is free, or hold it for longer; whether it is ours now."""

    def pin(self) -> bool:
        """Let the writes that follow be made under the lease as it is held now; whether it is."""

    @property
    def is_held(self) -> bool:
        """Whether the pinned lease is certain to be ours a while yet."""

    def check(self) -> None:
        """Ask the database whether the pinned lease is ours still. Raises `LeaseLostError`."""

    def release(self) -> None:
        """Let another have it at once."""


class EventStore(Protocol):
    """Keeps events. They are written by `JobStore`, in the transaction of the row they tell of."""

    def read_events(
        self, after: int, limit: int, job_id: str | None = None, projects: frozenset[str] | None = None
    ) -> EventPage:
        """Events with larger numbers, of one job or of all, of some projects or of all, at most `limit`."""

    def prune_events(self, before: datetime, keep: int, limit: int) -> int:
        """Delete the oldest events, at most `limit`: those before a moment, and those beyond the last `keep`.

        Returns how many.
        """


class LedgerHealth(Protocol):
    """What can be asked of the database itself."""

    def job_figures(self) -> JobFigures:
        """Jobs by state."""

    def check_writable(self) -> None:
        """Write something of no consequence. Raises whatever the database says instead."""

    def missing_migrations(self) -> bool:
        """Whether the tables are of an older form than this version needs; those of a later version are as good."""


class Leadership(Protocol):
    """What the reconciler's loop asks before it acts."""

    def start(self, on_taken: Callable[[], None]) -> None:
        """Begin to try for it; `on_taken` is called, on any thread, when it is ours."""

    def begin_round(self) -> bool:
        """Whether a round may be made."""

    @property
    def is_held(self) -> bool:
        """Whether the round may go on."""

    def check(self) -> None:
        """Ask whether what is not written to the database may be done now. Raises `LeaseLostError`."""

    @property
    def fault(self) -> str | None:
        """What is wrong with this replica's own part in it; None where nothing is."""

    def beat(self) -> None:
        """The loop goes on."""

    def stop(self) -> None:
        """Let another have it."""
