"""Projects, owners, keys, and an audit log that only grows."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_INDEXES = {
    "ix_jobs_project_is_archived_created_at_job_id": ("jobs", ["project", "is_archived", "created_at", "job_id"]),
    "ix_jobs_project_is_archived_state_created_at_job_id": (
        "jobs",
        ["project", "is_archived", "state", "created_at", "job_id"],
    ),
    "ix_jobs_owner_is_archived_created_at_job_id": ("jobs", ["owner", "is_archived", "created_at", "job_id"]),
    "ix_events_project_seq": ("events", ["project", "seq"]),
}
_REFUSAL = "the audit log only grows"
_SQLITE = (
    f"CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
    f"CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
    # REPLACE deletes without asking the trigger above.
    "CREATE TRIGGER audit_log_no_replace BEFORE INSERT ON audit_log "
    "WHEN EXISTS (SELECT 1 FROM audit_log WHERE audit_id = NEW.audit_id) "
    "BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END",
)
_POSTGRESQL = (
    "CREATE FUNCTION audit_log_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$",
    "CREATE TRIGGER audit_log_no_change BEFORE UPDATE OR DELETE ON audit_log "
    "FOR EACH ROW EXECUTE FUNCTION audit_log_refuse()",
    "CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuse()",
)


def upgrade() -> None:
    projects = op.create_table(
        "projects",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("created_by", sa.String(250), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_projects"),
    )
    now = datetime.now(UTC).replace(tzinfo=None)
    op.bulk_insert(projects, [{"name": "default", "created_at": now, "created_by": "local"}])
    op.add_column("jobs", sa.Column("project", sa.String(40), nullable=False, server_default="default"))
    op.add_column("jobs", sa.Column("owner", sa.String(200), nullable=False, server_default="local"))
    # No default: a replica of the version before, which still writes events of our jobs, would tell those of all
    # projects to `default`. Every event until now is of a job of `default`.
    op.add_column("events", sa.Column("project", sa.String(40)))
    op.execute("UPDATE events SET project = 'default'")
    for name, (table, columns) in _INDEXES.items():
        op.create_index(name, table, columns)
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("project", sa.String(40)),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("scopes", sa.String(200), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("created_by", sa.String(250), nullable=False),
        sa.Column("expires_at", sa.DateTime),
        sa.Column("revoked_at", sa.DateTime),
        sa.Column("last_used_at", sa.DateTime),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["project"], ["projects.name"], name="fk_api_keys_project"),
    )
    op.create_index("ix_api_keys_project", "api_keys", ["project"])
    op.create_table(
        "audit_log",
        sa.Column("audit_id", sa.Integer, autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("request_id", sa.String(100), nullable=False),
        sa.Column("principal", sa.String(300), nullable=False),
        sa.Column("action", sa.String(120), nullable=False),
        sa.Column("object", sa.Text, nullable=False),
        sa.Column("project", sa.String(40)),
        sa.Column("outcome", sa.String(120), nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("audit_id", name="pk_audit_log"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_log_project_audit_id", "audit_log", ["project", "audit_id"])
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)


def downgrade() -> None:
    op.drop_table("audit_log")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION audit_log_refuse()")
    op.drop_table("api_keys")
    for name, (table, _) in _INDEXES.items():
        op.drop_index(name, table)
    op.drop_column("events", "project")
    op.drop_column("jobs", "owner")
    op.drop_column("jobs", "project")
    op.drop_table("projects")
