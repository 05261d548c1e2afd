"""Webhooks and their deliveries on SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, Select, String, delete, exists, func, insert, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from service.access.audit import AuditEntry
from service.ledger.access_store import audit_row
from service.ledger.tables import UtcDateTime
from service.ledger.webhook_tables import DeliveryRow, WebhookLabelRow, WebhookRow
from service.webhooks.records import Attempt, Delivery, DeliveryState, Webhook

_DELIVERY_FIELDS = tuple(field.name for field in fields(Delivery))
_SAME_FIELDS = tuple(field.name for field in fields(Webhook) if field.name not in ("events", "labels"))


class SqlWebhookStore:
    """`WebhookStore` on an engine. As of jobs, no transaction reads before it writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def insert(self, webhook: Webhook, audit: AuditEntry) -> None:
        """Add a webhook."""
        values = {name: getattr(webhook, name) for name in _SAME_FIELDS}
        with Session(self._engine) as session, session.begin():
            session.execute(insert(WebhookRow).values(**values, events=f" {' '.join(webhook.events)} "))
            for key, value in webhook.labels.items():
                label = {"webhook_id": webhook.webhook_id, "key": key, "value": value}
                session.execute(insert(WebhookLabelRow).values(label))
            session.add(audit_row(audit))
        _say_kept(audit)

    def find(self, webhook_id: str) -> Webhook | None:
        """One webhook."""
        found = self._read(select(WebhookRow).where(WebhookRow.webhook_id == webhook_id))
        return found[0] if found else None

    def list_webhooks(self, projects: frozenset[str] | None, limit: int) -> Sequence[Webhook]:
        """Webhooks of some projects, newest first; None for all."""
        query = select(WebhookRow).order_by(WebhookRow.created_at.desc(), WebhookRow.webhook_id).limit(limit)
        return self._read(query if projects is None else query.where(WebhookRow.project.in_(sorted(projects))))

    def delete(self, webhook_id: str, audit: AuditEntry) -> None:
        """Delete a webhook and its deliveries; the entry is added only where it was there."""
        statement = delete(WebhookRow).where(WebhookRow.webhook_id == webhook_id)
        self._change(statement.returning(WebhookRow.webhook_id), audit)

    def enable(self, webhook_id: str, audit: AuditEntry) -> None:
        """Send to it again."""
        statement = update(WebhookRow).where(WebhookRow.webhook_id == webhook_id, WebhookRow.disabled_at.is_not(None))
        self._change(statement.values(disabled_at=None, failing_since=None).returning(WebhookRow.webhook_id), audit)

    def disable(self, webhook_id: str, at: datetime, audit: AuditEntry) -> None:
        """Send nothing to a webhook any more; what waits is given up."""
        statement = update(WebhookRow).where(WebhookRow.webhook_id == webhook_id, WebhookRow.disabled_at.is_(None))
        waiting = update(DeliveryRow).where(DeliveryRow.webhook_id == webhook_id, _IS_PENDING)
        with Session(self._engine) as session, session.begin():
            if session.execute(statement.values(disabled_at=at).returning(WebhookRow.webhook_id)).all():
                session.execute(waiting.values(state=DeliveryState.DEAD.value))
                session.add(audit_row(audit))

    def add(self, delivery: Delivery, audit: AuditEntry) -> None:
        """Add a message that tells of no event."""
        values = {name: getattr(delivery, name) for name in _DELIVERY_FIELDS} | {"state": delivery.state.value}
        with Session(self._engine) as session, session.begin():
            session.execute(insert(DeliveryRow).values(values))
            session.add(audit_row(audit))
        _say_kept(audit)

    def find_delivery(self, delivery_id: str) -> Delivery | None:
        """One delivery."""
        found = self._deliveries(select(DeliveryRow).where(DeliveryRow.delivery_id == delivery_id))
        return found[0] if found else None

    def deliveries(
        self, webhook_id: str, state: DeliveryState | None, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[Delivery]:
        """Deliveries of a webhook, newest first, older than (created_at, delivery_id)."""
        query = select(DeliveryRow).where(DeliveryRow.webhook_id == webhook_id).limit(limit)
        if state is not None:
            query = query.where(DeliveryRow.state == state.value)
        if before is not None:
            # Said by type: left to the driver, the moment keeps its zone.
            place = tuple_(*before, types=[UtcDateTime(), String()])
            query = query.where(tuple_(DeliveryRow.created_at, DeliveryRow.delivery_id) < place)
        return self._deliveries(query.order_by(DeliveryRow.created_at.desc(), DeliveryRow.delivery_id.desc()))

    def send_again(self, delivery_id: str, at: datetime, audit: AuditEntry) -> None:
        """Let a delivery that is over be made once more, as if it were new."""
        statement = update(DeliveryRow).where(DeliveryRow.delivery_id == delivery_id, ~_IS_PENDING)
        values = {"state": DeliveryState.PENDING.value, "num_attempts": 0, "first_due_at": at, "due_at": at}
        self._change(statement.values(values).returning(DeliveryRow.delivery_id), audit)

    def list_due(self, at: datetime, limit: int) -> Sequence[Webhook]:
        """Webhooks with something to send, those first whose oldest message has waited longest.

        Those that fail come after all others: however many they are, they hold up nobody's that answers.
        """
        due = (
            select(DeliveryRow.webhook_id, func.min(DeliveryRow.due_at).label("due_at"))
            .where(_IS_PENDING, DeliveryRow.due_at <= at, ~_is_held_up(at))
            .group_by(DeliveryRow.webhook_id)
            .subquery()
        )
        query = select(WebhookRow).join(due, due.c.webhook_id == WebhookRow.webhook_id)
        return self._read(
            query.where(WebhookRow.disabled_at.is_(None))
            .order_by(WebhookRow.failing_since.is_not(None), due.c.due_at)
            .limit(limit)
        )

    def due_deliveries(self, webhook_id: str, at: datetime, limit: int) -> Sequence[Delivery]:
        """What is to be sent to a webhook, in order; nothing of a job whose earlier message waits for its time."""
        query = select(DeliveryRow).where(
            DeliveryRow.webhook_id == webhook_id, _IS_PENDING, DeliveryRow.due_at <= at, ~_is_held_up(at)
        )
        return self._deliveries(query.order_by(DeliveryRow.seq, DeliveryRow.delivery_id).limit(limit))

    def note_attempt(self, delivery: Delivery, attempt: Attempt, state: DeliveryState, due_at: datetime) -> None:
        """Keep what came of an attempt, and since when its webhook fails."""
        # As it was when it was read: of two replicas that sent it at once one keeps its word.
        statement = update(DeliveryRow).where(
            DeliveryRow.delivery_id == delivery.delivery_id,
            _IS_PENDING,
            DeliveryRow.num_attempts == delivery.num_attempts,
        )
        values = {
            "state": state.value,
            "num_attempts": delivery.num_attempts + 1,
            "due_at": due_at,
            "attempted_at": attempt.at,
            "status": attempt.status,
            "error": attempt.error,
        }
        webhook = update(WebhookRow).where(WebhookRow.webhook_id == delivery.webhook_id)
        if attempt.error is None:
            webhook = webhook.where(WebhookRow.failing_since.is_not(None)).values(failing_since=None)
        else:
            webhook = webhook.where(WebhookRow.failing_since.is_(None)).values(failing_since=attempt.at)
        with Session(self._engine) as session, session.begin():
            # The webhook first, as whoever deletes it does: so neither waits for the other in vain.
            session.execute(webhook)
            session.execute(statement.values(values))

    def prune(self, before: datetime, limit: int) -> int:
        """Delete deliveries that are over and this old; how many. Whatever waits at a webhook that is disabled is given
        up: an event may have been written at the moment in which it was disabled.
        """
        disabled = select(WebhookRow.webhook_id).where(WebhookRow.disabled_at.is_not(None))
        waiting = _free(_IS_PENDING, DeliveryRow.webhook_id.in_(disabled))
        given_up = update(DeliveryRow).where(DeliveryRow.delivery_id.in_(waiting))
        with Session(self._engine) as session, session.begin():
            session.execute(given_up.values(state=DeliveryState.DEAD.value))
        old = _free(~_IS_PENDING, DeliveryRow.created_at < before).limit(limit)
        statement = delete(DeliveryRow).where(DeliveryRow.delivery_id.in_(old)).returning(DeliveryRow.delivery_id)
        with Session(self._engine) as session, session.begin():
            return len(session.execute(statement).all())

    def figures(self) -> Mapping[DeliveryState, int]:
        """How many deliveries wait and how many were given up."""
        told = (DeliveryState.PENDING, DeliveryState.DEAD)
        query = select(DeliveryRow.state, func.count()).where(DeliveryRow.state.in_([state.value for state in told]))
        with Session(self._engine) as session:
            counts = {
                DeliveryState(state): number for state, number in session.execute(query.group_by(DeliveryRow.state))
            }
        return {state: counts.get(state, 0) for state in told}

    def _change(self, statement: Any, audit: AuditEntry) -> None:
        """Carry out a statement that returns rows, and keep a record if there were any."""
        with Session(self._engine) as session, session.begin():
            changed = session.execute(statement).all()
            if changed:
                session.add(audit_row(audit))
        if changed:
            _say_kept(audit)

    def _read(self, query: Select[WebhookRow]) -> list[Webhook]:
        with Session(self._engine) as session:
            rows = list(session.scalars(query))
            labels: dict[str, dict[str, str]] = {row.webhook_id: {} for row in rows}
            wanted = select(WebhookLabelRow).where(WebhookLabelRow.webhook_id.in_(labels))
            for label in session.scalars(wanted.order_by(WebhookLabelRow.key)) if rows else ():
                labels[label.webhook_id][label.key] = label.value
            return [_webhook(row, labels[row.webhook_id]) for row in rows]

    def _deliveries(self, query: Select[DeliveryRow]) -> list[Delivery]:
        with Session(self._engine) as session:
            return [_delivery(row) for row in session.scalars(query)]


_IS_PENDING = DeliveryRow.state == DeliveryState.PENDING.value


def _free(*conditions: ColumnElement[bool]) -> Select[str]:
    """Ids of deliveries that nobody else changes now: whoever deletes their webhook holds some of them already, and
    would wait for those that are held here.
    """
    return select(DeliveryRow.delivery_id).where(*conditions).with_for_update(skip_locked=True)


def _webhook(row: WebhookRow, labels: Mapping[str, str]) -> Webhook:
    values = {name: getattr(row, name) for name in _SAME_FIELDS}
    return Webhook(**values, events=tuple(row.events.split()), labels=labels)


def _delivery(row: DeliveryRow) -> Delivery:
    values = {name: getattr(row, name) for name in _DELIVERY_FIELDS}
    return Delivery(**values | {"state": DeliveryState(row.state)})


def _say_kept(audit: AuditEntry) -> None:
    """After the commit: whoever asked for the row knows that it is there."""
    if audit.on_kept is not None:
        audit.on_kept()


def _is_held_up(at: datetime) -> ColumnElement[bool]:
    """Whether an earlier message of the same job to the same webhook waits for its time."""
    earlier = aliased(DeliveryRow)
    return exists().where(
        earlier.webhook_id == DeliveryRow.webhook_id,
        earlier.state == DeliveryState.PENDING.value,
        earlier.job_id == DeliveryRow.job_id,
        earlier.seq < DeliveryRow.seq,
        earlier.due_at > at,
    )
