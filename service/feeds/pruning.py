"""Events are kept for a while, and no more of them than so many."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from service.feeds.interfaces import EventStore
from service.settings import Settings

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 60.0
BATCH_EVENTS = 1000
"""Deleted at a time: while they are, nobody else writes events."""


class EventPruning:
    """Deletes old events now and then. Two replicas that do so at once delete the same ones."""

    def __init__(
        self, store: EventStore, settings: Settings, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._store = store
        self._keep = settings.event_retention_count
        self._age = timedelta(seconds=settings.event_retention_seconds)
        self._now = now
        self._due_at = time.monotonic()

    def run(self) -> int:
        """Delete a batch, if it is time; how many. After a full batch the next is due at once."""
        if time.monotonic() < self._due_at:
            return 0
        deleted = self._store.prune_events(self._now() - self._age, self._keep, BATCH_EVENTS)
        if deleted < BATCH_EVENTS:
            self._due_at = time.monotonic() + INTERVAL_SECONDS
        if deleted:
            log.info("events_deleted", events=deleted)
        return deleted
