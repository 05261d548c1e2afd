"""What attempts took of the cluster."""

from __future__ import annotations

import json
import time
from datetime import UTC
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_ROWS = 1000
_jobs = sa.table(
    "jobs",
    *(sa.column(name, sa.String) for name in ("job_id", "state", "spec_json", "progress")),
    sa.column("attempt", sa.Integer),
    sa.column("running_seconds", sa.Float),
    sa.column("started_at", sa.DateTime),
    sa.column("finished_at", sa.DateTime),
)


def upgrade() -> None:
    attempts = op.create_table(
        "job_attempts",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("attempt", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("job_id", "attempt", name="pk_job_attempts"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_job_attempts_job_id", ondelete="CASCADE"),
    )
    op.create_index("ix_job_attempts_ended_ms", "job_attempts", ["ended_ms"])
    op.create_index("ix_job_attempts_started_ms", "job_attempts", ["started_ms"])
    work = op.create_table(
        "job_work",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("num_millicpus", sa.BigInteger, nullable=False),
        sa.Column("num_gpus", sa.Integer, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("flops", sa.Double, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_work"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_job_work_job_id", ondelete="CASCADE"),
    )
    _take_over_jobs(attempts, work)


def _take_over_jobs(attempts: Any, work: Any) -> None:
    """Of jobs that have run one attempt each, as long as all together: more was not written down."""
    bind, last, now_ms = op.get_bind(), "", int(time.time() * 1000)
    while True:
        query = sa.select(_jobs).where(_jobs.c.started_at.is_not(None), _jobs.c.job_id > last)
        rows = bind.execute(query.order_by(_jobs.c.job_id).limit(_ROWS)).all()
        if not rows:
            return
        last = rows[-1].job_id
        op.bulk_insert(attempts, [_attempt(row, now_ms) for row in rows])
        op.bulk_insert(work, [_work(row) for row in rows])


def _attempt(row: Any, now_ms: int) -> dict[str, Any]:
    started = int(row.started_at.replace(tzinfo=UTC).timestamp() * 1000)
    ran = int((row.running_seconds or 0.0) * 1000)
    if not ran and row.finished_at is not None:
        ran = int((row.finished_at - row.started_at).total_seconds() * 1000)
    times: dict[str, int | None] = {"started_ms": started, "ended_ms": started + max(1, ran)}
    if row.state in ("RUNNING", "PAUSING", "CANCELLING"):
        times = {"started_ms": now_ms - ran, "ended_ms": None}
    # An attempt that has not begun to run will be counted when it does; what ran was the one before.
    attempt = row.attempt - 1 if row.state == "STARTING" else row.attempt
    return {"job_id": row.job_id, "attempt": max(1, attempt), **times}


def _work(row: Any) -> dict[str, Any]:
    spec = _section(json.loads(row.spec_json))
    base = _section(spec.get("base"))
    compute, times = _section(spec.get("compute")), 1
    if spec.get("kind") == "search":
        compute, times = _section(base.get("compute")), int(compute.get("max_concurrent_trials") or 1)
    workers = int(compute.get("num_workers") or 1) * times
    progress = _section(json.loads(row.progress)) if row.progress else {}
    return {
        "job_id": row.job_id,
        "num_millicpus": round(1000 * float(compute.get("cpus_per_worker") or 1.0)) * workers,
        "num_gpus": int(compute.get("gpus_per_worker") or 0) * workers,
        "tokens": int(progress.get("tokens") or 0),
        "flops": 0.0,
    }


def _section(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def downgrade() -> None:
    op.drop_table("job_work")
    op.drop_table("job_attempts")
