"""The words of webhooks over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from service.access.principals import ProjectName
from service.feeds.records import EventType
from service.http.schemas import Answer, Request
from service.labels import Labels
from service.webhooks.addresses import MAX_URL_CHARACTERS
from service.webhooks.records import Delivery, DeliveryState, Webhook

DEFAULT_EVENTS = frozenset({EventType.CREATED, EventType.STATE})
DELIVERY_ID_PATTERN = r"^[0-9a-f]{16}-[0-9a-z-]{1,40}$"
_EPOCH = datetime.fromtimestamp(0, UTC)


class WebhookCreate(Request):
    """An address to be told of events."""

    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)]
    """`https://`, at a host with public addresses alone, unless `ELECTRA_WEBHOOK_HOSTS` names it."""
    events: Annotated[frozenset[EventType], Field(min_length=1)] = DEFAULT_EVENTS
    labels: Annotated[Labels, Field(default_factory=dict)]
    """Only events of jobs that have all of these when the event happens."""
    project: ProjectName | None = None
    """Whose jobs it is told of; the principal's own project when absent."""


class WebhookPublic(Answer):
    """A webhook, without its secret."""

    webhook_id: str
    project: str
    url: str
    events: tuple[EventType, ...]
    labels: dict[str, str]
    created_at: AwareDatetime
    created_by: str
    failing_since: AwareDatetime | None
    """Absent while the last attempt succeeded."""
    disabled_at: AwareDatetime | None
    """Since when nothing is sent, because it had failed for long."""

    @classmethod
    def from_webhook(cls, webhook: Webhook) -> WebhookPublic:
        """The public view of a row."""
        return cls(**_fields(webhook))


class WebhookCreated(WebhookPublic):
    """A new webhook, with what is shown this once."""

    secret: str
    """Signs what is sent. It is kept nowhere."""

    @classmethod
    def made(cls, webhook: Webhook, secret: str) -> WebhookCreated:
        """The public view of a row, and the secret."""
        return cls(**_fields(webhook), secret=secret)


class WebhookList(Answer):
    """Webhooks, newest first."""

    items: tuple[WebhookPublic, ...]


class DeliveryQuery(Request):
    """Which deliveries of a webhook to list, newest first."""

    state: DeliveryState | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    """Deliveries a page."""
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,17}_[0-9a-z-]{1,60}$")] | None = None
    """`next_cursor` of the page before."""

    @property
    def before(self) -> tuple[datetime, str] | None:
        """Where the page begins."""
        if self.cursor is None:
            return None
        microseconds, _, delivery_id = self.cursor.partition("_")
        return _EPOCH + timedelta(microseconds=int(microseconds)), delivery_id


class DeliveryPublic(Answer):
    """One message to one webhook."""

    delivery_id: str
    """The `webhook-id` header of each attempt."""
    type: str
    """Type of the event, or `ping`."""
    job_id: str | None
    seq: int | None
    """Number of the event."""
    state: DeliveryState
    num_attempts: int
    created_at: AwareDatetime
    due_at: AwareDatetime | None
    """When it is tried next; absent where it is over."""
    attempted_at: AwareDatetime | None
    status: int | None
    """Of the last answer."""
    error: str | None
    """What went wrong last: `connect`, `tls`, `timeout`, `protocol`, `address_refused`, `redirect`, `status` or
    `key_changed`."""

    @classmethod
    def from_delivery(cls, delivery: Delivery) -> DeliveryPublic:
        """The public view of a row."""
        values = {name: getattr(delivery, name) for name in cls.model_fields}
        is_pending = delivery.state is DeliveryState.PENDING
        values |= {"job_id": delivery.job_id or None, "seq": delivery.seq or None}
        return cls(**values | {"due_at": delivery.due_at if is_pending else None})


class DeliveryPage(Answer):
    """Some deliveries, newest first."""

    items: tuple[DeliveryPublic, ...]
    next_cursor: str | None = None
    """Give it as `cursor` for the deliveries after these; absent at the end."""

    @classmethod
    def of(cls, found: list[Delivery], limit: int) -> DeliveryPage:
        """A page of what was read, which is one more than the page holds where there is another."""
        page = found[:limit]
        items = tuple(map(DeliveryPublic.from_delivery, page))
        return cls(items=items, next_cursor=_cursor(page[-1]) if len(found) > limit else None)


def _cursor(delivery: Delivery) -> str:
    return f"{(delivery.created_at - _EPOCH) // timedelta(microseconds=1)}_{delivery.delivery_id}"


def _fields(webhook: Webhook) -> dict[str, Any]:
    values = {name: getattr(webhook, name) for name in WebhookPublic.model_fields}
    return values | {"events": tuple(EventType(event) for event in webhook.events), "labels": dict(webhook.labels)}
