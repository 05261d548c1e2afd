"""Webhooks and what is to be sent to them: frozen records, and what keeps them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from service.access.audit import AuditEntry

PING = "ping"
"""Type of what is sent to try a webhook."""


class DeliveryState(StrEnum):
    """What became of one message to one webhook."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    """Given up; it can be sent again by hand."""


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """An address that is told of what happens to the jobs of a project. It has no secret: see `signing`."""

    webhook_id: str
    project: str
    url: str
    events: tuple[str, ...]
    """Types of events that it is told of."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Only jobs that have all of these."""
    key_fingerprint: str
    """Of the service's key that its secret is derived from."""
    created_at: datetime
    created_by: str
    failing_since: datetime | None = None
    """None while the last attempt succeeded."""
    disabled_at: datetime | None = None
    """Nothing is sent to it, or kept to be sent."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One message to one webhook."""

    delivery_id: str
    """Goes with every attempt, so that a receiver knows what it has had before."""
    webhook_id: str
    seq: int
    """Number of the event; 0 of a ping."""
    job_id: str
    """Empty of a ping."""
    type: str
    body: str
    created_at: datetime
    state: DeliveryState = DeliveryState.PENDING
    num_attempts: int = 0
    first_due_at: datetime
    """When it was to be sent first: its days are counted from here."""
    due_at: datetime
    """No attempt is made before."""
    attempted_at: datetime | None = None
    status: int | None = None
    """Of the last answer; None where there was none."""
    error: str | None = None
    """What went wrong with the last attempt, in a word; never what the receiver said."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What came of one attempt."""

    at: datetime
    status: int | None
    error: str | None
    """None where it succeeded."""


class WebhookStore(Protocol):
    """Keeps webhooks and deliveries. Every method is one transaction; deliveries of events are written by `JobStore`,
    in the transaction of the event they tell of.
    """

    def insert(self, webhook: Webhook, audit: AuditEntry) -> None:
        """Add a webhook."""

    def find(self, webhook_id: str) -> Webhook | None:
        """One webhook."""

    def list_webhooks(self, projects: frozenset[str] | None, limit: int) -> Sequence[Webhook]:
        """Webhooks of some projects, newest first; None for all."""

    def delete(self, webhook_id: str, audit: AuditEntry) -> None:
        """Delete a webhook and its deliveries; the entry is added only where it was there."""

    def enable(self, webhook_id: str, audit: AuditEntry) -> None:
        """Send to it again."""

    def disable(self, webhook_id: str, at: datetime, audit: AuditEntry) -> None:
        """Send nothing to a webhook any more; what waits is given up."""

    def add(self, delivery: Delivery, audit: AuditEntry) -> None:
        """Add a message that tells of no event."""

    def find_delivery(self, delivery_id: str) -> Delivery | None:
        """One delivery."""

    def deliveries(
        self, webhook_id: str, state: DeliveryState | None, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[Delivery]:
        """Deliveries of a webhook, newest first, older than (created_at, delivery_id)."""

    def send_again(self, delivery_id: str, at: datetime, audit: AuditEntry) -> None:
        """Let a delivery that is over be made once more, as if it were new."""

    def list_due(self, at: datetime, limit: int) -> Sequence[Webhook]:
        """Webhooks with something to send."""

    def due_deliveries(self, webhook_id: str, at: datetime, limit: int) -> Sequence[Delivery]:
        """What is to be sent to a webhook, in order; nothing of a job whose earlier message waits for its time."""

    def note_attempt(self, delivery: Delivery, attempt: Attempt, state: DeliveryState, due_at: datetime) -> None:
        """Keep what came of an attempt, and since when its webhook fails."""

    def prune(self, before: datetime, limit: int) -> int:
        """Delete the oldest deliveries that are over; how many."""

    def figures(self) -> Mapping[DeliveryState, int]:
        """How many deliveries wait and how many were given up."""
