"""Jobs, idempotency keys and the state of the cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("spec_json", sa.Text, nullable=False),
        sa.Column("spec_sha256", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("started_at", sa.DateTime),
        sa.Column("finished_at", sa.DateTime),
        sa.Column("cancel_requested_at", sa.DateTime),
        sa.Column("not_before_at", sa.DateTime),
        sa.Column("heartbeat_seen_at", sa.DateTime),
        sa.Column("progress", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("failure", sa.Text),
        sa.Column("is_log_saved", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_created_at_job_id", "jobs", ["created_at", "job_id"])
    op.create_index("ix_jobs_state_created_at_job_id", "jobs", ["state", "created_at", "job_id"])
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("body_sha256", sa.String(64), nullable=False),
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_idempotency_keys"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_idempotency_keys_job_id", ondelete="CASCADE"),
    )
    op.create_index("ix_idempotency_keys_job_id", "idempotency_keys", ["job_id"])
    op.create_table(
        "cluster_status",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("reconciled_at", sa.DateTime, nullable=False),
        sa.Column("is_ray_reachable", sa.Boolean, nullable=False),
        sa.Column("ray_error", sa.Text),
        sa.Column("num_cpus", sa.Float),
        sa.Column("num_gpus", sa.Float),
        sa.PrimaryKeyConstraint("id", name="pk_cluster_status"),
    )


def downgrade() -> None:
    op.drop_table("cluster_status")
    op.drop_table("idempotency_keys")
    op.drop_table("jobs")
