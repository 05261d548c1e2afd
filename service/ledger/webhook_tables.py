"""Tables of webhooks, beside those of `tables.py`."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from service.ledger.tables import Base, UtcDateTime


class WebhookRow(Base):
    """`service.webhooks.records.Webhook`."""

    __tablename__ = "webhooks"

    webhook_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("projects.name"), index=True)
    url: Mapped[str] = mapped_column(Text)
    events: Mapped[str] = mapped_column(String(200))
    """Types, each with a space before and behind it."""
    key_fingerprint: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(250))
    failing_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    disabled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class WebhookLabelRow(Base):
    """A label that jobs must have for a webhook to be told of them."""

    __tablename__ = "webhook_labels"

    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.webhook_id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(317), primary_key=True)
    value: Mapped[str] = mapped_column(String(63))


class DeliveryRow(Base):
    """`service.webhooks.records.Delivery`. Of an event its id is made of the webhook's and the event's number."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        # What is due, and of one webhook, and of one of its jobs.
        Index(None, "state", "due_at"),
        Index(None, "webhook_id", "state", "job_id", "seq"),
        # Lists.
        Index(None, "webhook_id", "created_at", "delivery_id"),
    )

    delivery_id: Mapped[str] = mapped_column(String(60), primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.webhook_id", ondelete="CASCADE"))
    seq: Mapped[int] = mapped_column(BigInteger)
    job_id: Mapped[str] = mapped_column(String(63))
    type: Mapped[str] = mapped_column(String(20))
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    state: Mapped[str] = mapped_column(String(20))
    num_attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    first_due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    attempted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    status: Mapped[int | None] = mapped_column(Integer)
    error: Mapped[str | None] = mapped_column(String(40))
