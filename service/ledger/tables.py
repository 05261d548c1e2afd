"""The tables. `migrations/` makes them; a test holds the two together."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    Boolean,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored in UTC. SQLite keeps no zone, so the zone is taken off and put on here for every database."""

    impl = DateTime(timezone=False)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Aware to naive UTC."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Naive UTC to aware."""
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """All tables; constraints have names, so that migrations can speak of them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
        }
    )


class JobRow(Base):
    """`service.records.Job`. Documents are JSON text: they are read whole, and JSONB would refuse NUL characters."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "created_at", "job_id"),
        Index(None, "state", "created_at", "job_id"),
        Index(None, "state", "queue_rank", "created_at", "job_id"),
        # Lists, which leave out what is archived: of all jobs, of a project's, of an owner's.
        Index(None, "is_archived", "created_at", "job_id"),
        Index(None, "is_archived", "state", "created_at", "job_id"),
        Index(None, "project", "is_archived", "created_at", "job_id"),
        Index(None, "project", "is_archived", "state", "created_at", "job_id"),
        Index(None, "owner", "is_archived", "created_at", "job_id"),
        # What the reconciler looks for every two seconds, among a million jobs that are over.
        Index(None, "state", "is_log_saved"),
        Index(None, "state", "cancel_requested_at"),
        Index(None, "state", "pause_requested_at"),
    )

    job_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    kind: Mapped[str] = mapped_column(String(20))
    spec_json: Mapped[str] = mapped_column(Text)
    spec_sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    state: Mapped[str] = mapped_column(String(20))
    attempt: Mapped[int] = mapped_column(Integer)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cancel_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    not_before_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    heartbeat_seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    progress: Mapped[str | None] = mapped_column(Text)
    result: Mapped[str | None] = mapped_column(Text)
    failure: Mapped[str | None] = mapped_column(Text)
    is_log_saved: Mapped[bool] = mapped_column(Boolean)
    project: Mapped[str] = mapped_column(String(40), server_default="default")
    owner: Mapped[str] = mapped_column(String(200), server_default="local")
    queue_rank: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    """The priority with its sign turned, so that one ascending index has the queue in its order."""
    labels: Mapped[str | None] = mapped_column(Text)
    notes: Mapped[str | None] = mapped_column(Text)
    limits: Mapped[str | None] = mapped_column(Text)
    is_archived: Mapped[bool] = mapped_column(Boolean, server_default=false())
    retry_of: Mapped[str | None] = mapped_column(String(63))
    clone_of: Mapped[str | None] = mapped_column(String(63))
    pause_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    kill_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    stop_asked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    num_failures: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    starting_seconds: Mapped[float] = mapped_column(Float, server_default=text("0"))
    running_seconds: Mapped[float] = mapped_column(Float, server_default=text("0"))
    silent_seconds: Mapped[float] = mapped_column(Float, server_default=text("0"))
    demand: Mapped[str | None] = mapped_column(Text)
    queued_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    waiting_reason: Mapped[str | None] = mapped_column(String(40))
    waiting_message: Mapped[str | None] = mapped_column(Text)
    queue_position: Mapped[int | None] = mapped_column(Integer)
    run_started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    preempted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    preempted_for: Mapped[str | None] = mapped_column(String(63))
    num_preemptions: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    resolved_aliases: Mapped[str | None] = mapped_column(Text)
    adopted_submissions: Mapped[str | None] = mapped_column(Text)


class JobLabelRow(Base):
    """A label of a job, to find it by; `JobRow.labels` has them all, to show them.

    `created_at` is the job's: so a page of jobs with a label is one run of the index.
    """

    __tablename__ = "job_labels"
    __table_args__ = (Index(None, "key", "value", "created_at", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(317), primary_key=True)
    value: Mapped[str] = mapped_column(String(63))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class IdempotencyKeyRow(Base):
    """A client's name for the request that made a job; of all but the local user a digest of it, owner and project."""

    __tablename__ = "idempotency_keys"

    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_sha256: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id", ondelete="CASCADE"), index=True)


class ClusterStatusRow(Base):
    """`service.records.ClusterStatus`: one row, whose id is 1."""

    __tablename__ = "cluster_status"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    reconciled_at: Mapped[datetime] = mapped_column(UtcDateTime)
    is_ray_reachable: Mapped[bool] = mapped_column(Boolean)
    ray_error: Mapped[str | None] = mapped_column(Text)
    num_cpus: Mapped[float | None] = mapped_column(Float)
    num_gpus: Mapped[float | None] = mapped_column(Float)
    free_cpus: Mapped[float | None] = mapped_column(Float)
    free_gpus: Mapped[float | None] = mapped_column(Float)
    resources_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ProjectRow(Base):
    """A name that jobs, models and keys belong to. Projects are never deleted."""

    __tablename__ = "projects"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(250))


class ApiKeyRow(Base):
    """`service.access.keys.ApiKey`: no secret, but the hash of one."""

    __tablename__ = "api_keys"

    key_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    secret_sha256: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(100))
    owner: Mapped[str] = mapped_column(String(200))
    project: Mapped[str | None] = mapped_column(ForeignKey("projects.name"), index=True)
    role: Mapped[str] = mapped_column(String(20))
    scopes: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(250))
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class AuditRow(Base):
    """`service.access.audit.AuditEntry`. The migration adds triggers that refuse to change or delete a row."""

    __tablename__ = "audit_log"
    __table_args__ = (Index(None, "project", "audit_id"), {"sqlite_autoincrement": True})

    audit_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    request_id: Mapped[str] = mapped_column(String(100))
    principal: Mapped[str] = mapped_column(String(300))
    action: Mapped[str] = mapped_column(String(120))
    object: Mapped[str] = mapped_column(Text)
    project: Mapped[str | None] = mapped_column(String(40))
    outcome: Mapped[str] = mapped_column(String(120))
    address: Mapped[str] = mapped_column(Text)
