"""Pausing, killing, limits, priority, labels, notes, archive, and whom a job comes from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_FALSE = sa.text("false")
_ZERO = sa.text("0")


def _columns() -> list[sa.Column[object]]:
    return [
        sa.Column("queue_rank", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("labels", sa.Text),
        sa.Column("notes", sa.Text),
        sa.Column("limits", sa.Text),
        sa.Column("is_archived", sa.Boolean, nullable=False, server_default=_FALSE),
        sa.Column("retry_of", sa.String(63)),
        sa.Column("clone_of", sa.String(63)),
        sa.Column("pause_requested_at", sa.DateTime),
        sa.Column("kill_requested_at", sa.DateTime),
        sa.Column("stop_asked_at", sa.DateTime),
        sa.Column("num_failures", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("starting_seconds", sa.Float, nullable=False, server_default=_ZERO),
        sa.Column("running_seconds", sa.Float, nullable=False, server_default=_ZERO),
        sa.Column("silent_seconds", sa.Float, nullable=False, server_default=_ZERO),
    ]


_INDEXES = {
    "ix_jobs_state_queue_rank_created_at_job_id": ["state", "queue_rank", "created_at", "job_id"],
    "ix_jobs_is_archived_created_at_job_id": ["is_archived", "created_at", "job_id"],
    "ix_jobs_is_archived_state_created_at_job_id": ["is_archived", "state", "created_at", "job_id"],
    "ix_jobs_state_is_log_saved": ["state", "is_log_saved"],
    "ix_jobs_state_cancel_requested_at": ["state", "cancel_requested_at"],
    "ix_jobs_state_pause_requested_at": ["state", "pause_requested_at"],
}


def upgrade() -> None:
    for column in _columns():
        op.add_column("jobs", column)
    # Until now every attempt but the last had ended by a fault.
    op.execute("UPDATE jobs SET num_failures = attempt - 1 WHERE attempt > 0")
    op.execute("UPDATE jobs SET stop_asked_at = cancel_requested_at WHERE state = 'CANCELLING'")
    for name, columns in _INDEXES.items():
        op.create_index(name, "jobs", columns)
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("key", sa.String(317), nullable=False),
        sa.Column("value", sa.String(63), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name="pk_job_labels"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_job_labels_job_id", ondelete="CASCADE"),
    )
    op.create_index("ix_job_labels_key_value_created_at_job_id", "job_labels", ["key", "value", "created_at", "job_id"])


def downgrade() -> None:
    op.drop_table("job_labels")
    # An older version knows neither state; what is paused has its checkpoint, and CANCELLED is where it can be cloned.
    op.execute("UPDATE jobs SET state = 'CANCELLED', finished_at = created_at WHERE state = 'PAUSED'")
    op.execute("UPDATE jobs SET state = 'CANCELLING', cancel_requested_at = created_at WHERE state = 'PAUSING'")
    for name in _INDEXES:
        op.drop_index(name, "jobs")
    for column in _columns():
        op.drop_column("jobs", column.name)
