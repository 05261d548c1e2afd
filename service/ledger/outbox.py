"""What webhooks are to be told: rows written in the transaction of the event that they tell of, so that none is lost
and none tells of what was not written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import String, exists, insert, literal, select
from sqlalchemy.orm import Session, aliased

from service.ledger.tables import JobLabelRow, UtcDateTime
from service.ledger.webhook_tables import DeliveryRow, WebhookLabelRow, WebhookRow
from service.webhooks.records import DeliveryState

_COLUMNS = (
    "delivery_id",
    "webhook_id",
    "seq",
    "job_id",
    "type",
    "body",
    "created_at",
    "state",
    "num_attempts",
    "first_due_at",
    "due_at",
)


def write_outbox(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Add a delivery of each event to each webhook that is to be told of it. `rows`: of the table of events."""
    for row in rows:
        session.execute(insert(DeliveryRow).from_select(_COLUMNS, _wanted(row)))


def _wanted(row: dict[str, Any]) -> Any:
    at: datetime = row["at"]
    when = literal(at, UtcDateTime())
    # One statement, which reads only what it writes by: no look at the webhooks comes before the first write.
    wanted, has = aliased(WebhookLabelRow), aliased(JobLabelRow)
    is_there = exists().where(has.job_id == row["job_id"], has.key == wanted.key, has.value == wanted.value)
    is_label_missing = exists().where(wanted.webhook_id == WebhookRow.webhook_id, ~is_there)
    query = select(
        WebhookRow.webhook_id + literal(f"-{row['seq']}", String()),
        WebhookRow.webhook_id,
        literal(row["seq"], DeliveryRow.seq.type),
        literal(row["job_id"], String()),
        literal(row["type"], String()),
        literal(_body(row), DeliveryRow.body.type),
        when,
        literal(DeliveryState.PENDING.value, String()),
        literal(0, DeliveryRow.num_attempts.type),
        when,
        when,
    ).where(
        WebhookRow.project == row["project"],
        WebhookRow.disabled_at.is_(None),
        WebhookRow.events.contains(f" {row['type']} ", autoescape=True),
        ~is_label_missing,
    )
    # A webhook that is being deleted is waited for, and then is not there: its end must not be a job's fault.
    return query.with_for_update(read=True, key_share=True, of=WebhookRow)


def _body(row: dict[str, Any]) -> str:
    data = {
        "seq": row["seq"],
        "job_id": row["job_id"],
        "project": row["project"],
        "payload": json.loads(row["payload"]),
    }
    return json.dumps({"type": f"job.{row['type']}", "timestamp": row["at"].isoformat(), "data": data})
