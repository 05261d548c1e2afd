"""What the queue remembers: demands, why jobs wait, preemption, quotas, and what owners have used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _job_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("demand", sa.Text),
        sa.Column("queued_at", sa.DateTime),
        sa.Column("waiting_reason", sa.String(40)),
        sa.Column("waiting_message", sa.Text),
        sa.Column("queue_position", sa.Integer),
        sa.Column("run_started_at", sa.DateTime),
        sa.Column("preempted_at", sa.DateTime),
        sa.Column("preempted_for", sa.String(63)),
        sa.Column("num_preemptions", sa.Integer, nullable=False, server_default=sa.text("0")),
    ]


def _cluster_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("free_cpus", sa.Float),
        sa.Column("free_gpus", sa.Float),
        sa.Column("resources_at", sa.DateTime),
    ]


def upgrade() -> None:
    for column in _job_columns():
        op.add_column("jobs", column)
    for column in _cluster_columns():
        op.add_column("cluster_status", column)
    op.create_table(
        "quotas",
        sa.Column("scope", sa.String(10), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("max_running_jobs", sa.Integer),
        sa.Column("max_cpus", sa.Float),
        sa.Column("max_gpus", sa.Integer),
        sa.Column("set_at", sa.DateTime, nullable=False),
        sa.Column("set_by", sa.String(250), nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", name="pk_quotas"),
    )
    op.create_table(
        "owner_usage",
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("cpu_seconds", sa.Float, nullable=False),
        sa.Column("gpu_seconds", sa.Float, nullable=False),
        sa.Column("as_of", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_owner_usage"),
    )


def downgrade() -> None:
    op.drop_table("owner_usage")
    op.drop_table("quotas")
    for column in reversed(_cluster_columns()):
        op.drop_column("cluster_status", column.name)
    for column in reversed(_job_columns()):
        op.drop_column("jobs", column.name)
