"""Events, health, metrics and queue of a desk over a database of its own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from service.access.access import Access
from service.feeds.feed import EventFeed
from service.feeds.health import ServiceHealth
from service.feeds.metrics import ServiceMetrics
from service.interfaces import JobStore
from service.jobs.queue import QueueView
from service.ledger.access_store import SqlAccessStore
from service.ledger.events import SqlEventStore
from service.ledger.health import SqlLedgerHealth
from service.ledger.queue_store import SqlQueueStore
from service.ledger.webhook_store import SqlWebhookStore
from service.settings import Settings
from service.webhooks.webhooks import Webhooks


def feeds(engine: Engine, store: JobStore, settings: Settings) -> dict[str, Any]:
    """Arguments of `Desk`."""
    ledger, queue = SqlLedgerHealth(engine), SqlQueueStore(engine)
    events = EventFeed(
        SqlEventStore(engine),
        store.get,
        poll_seconds=0.02,
        max_followers=settings.max_event_followers,
        stream_seconds=settings.event_stream_seconds,
    )
    webhooks = SqlWebhookStore(engine)
    return {
        "webhooks": Webhooks(settings, webhooks, Access(settings, SqlAccessStore(engine))),
        "events": events,
        "health": ServiceHealth(ledger, store, settings),
        "metrics": ServiceMetrics(
            ledger,
            store,
            waits=queue.waiting_figures,
            num_followers=lambda: events.num_followers,
            webhook_figures=webhooks.figures,
        ),
        "queue": QueueView(queue, store, settings),
    }
