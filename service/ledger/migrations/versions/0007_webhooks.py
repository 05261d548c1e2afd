"""Webhooks, and what is to be sent to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_INDEXES = {
    "ix_webhook_deliveries_state_due_at": ["state", "due_at"],
    "ix_webhook_deliveries_webhook_id_state_job_id_seq": ["webhook_id", "state", "job_id", "seq"],
    "ix_webhook_deliveries_webhook_id_created_at_delivery_id": ["webhook_id", "created_at", "delivery_id"],
}


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("webhook_id", sa.String(16), nullable=False),
        sa.Column("project", sa.String(40), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.String(200), nullable=False),
        sa.Column("key_fingerprint", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("created_by", sa.String(250), nullable=False),
        sa.Column("failing_since", sa.DateTime),
        sa.Column("disabled_at", sa.DateTime),
        sa.PrimaryKeyConstraint("webhook_id", name="pk_webhooks"),
        sa.ForeignKeyConstraint(["project"], ["projects.name"], name="fk_webhooks_project"),
    )
    op.create_index("ix_webhooks_project", "webhooks", ["project"])
    op.create_table(
        "webhook_labels",
        sa.Column("webhook_id", sa.String(16), nullable=False),
        sa.Column("key", sa.String(317), nullable=False),
        sa.Column("value", sa.String(63), nullable=False),
        sa.PrimaryKeyConstraint("webhook_id", "key", name="pk_webhook_labels"),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.webhook_id"], name="fk_webhook_labels_webhook_id", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("delivery_id", sa.String(60), nullable=False),
        sa.Column("webhook_id", sa.String(16), nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("type", sa.String(20), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("num_attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("first_due_at", sa.DateTime, nullable=False),
        sa.Column("due_at", sa.DateTime, nullable=False),
        sa.Column("attempted_at", sa.DateTime),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.String(40)),
        sa.PrimaryKeyConstraint("delivery_id", name="pk_webhook_deliveries"),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.webhook_id"], name="fk_webhook_deliveries_webhook_id", ondelete="CASCADE"
        ),
    )
    for name, columns in _INDEXES.items():
        op.create_index(name, "webhook_deliveries", columns)


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_labels")
    op.drop_table("webhooks")
