"""Events and leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("type", sa.String(20), nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
    )
    op.create_index("ix_events_job_id_seq", "events", ["job_id", "seq"])
    op.create_table(
        "event_counter",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("pruned_seq", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event_counter"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("holder", sa.String(100), nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    # The rows are there from the start, so that writers only ever update them. `probe` is what readiness writes to.
    op.execute("INSERT INTO event_counter (id, last_seq, pruned_seq) VALUES (1, 0, 0)")
    for name in ("reconciler", "probe"):
        op.execute(f"INSERT INTO leases (name, holder, token, expires_at) VALUES ('{name}', '', 0, 0)")  # noqa: S608


def downgrade() -> None:
    op.drop_table("leases")
    op.drop_table("event_counter")
    op.drop_table("events")
