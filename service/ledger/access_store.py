"""Keys, projects and the audit log on SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime

import structlog
from sqlalchemy import Engine, or_, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from service.access.audit import AuditEntry
from service.access.interfaces import AuditFilter, Project
from service.access.keys import ApiKey
from service.access.principals import SCOPES_BEFORE_MODELS_WRITE, Permission, Role
from service.ledger.tables import ApiKeyRow, AuditRow, ProjectRow

log = structlog.get_logger(__name__)
_ENTRY_FIELDS = tuple(field.name for field in fields(AuditEntry) if field.name != "on_kept")
_KEY_FIELDS = tuple(field.name for field in fields(ApiKey))


def audit_row(entry: AuditEntry) -> AuditRow:
    """The row of an entry; its number is the database's to give."""
    return AuditRow(**{name: getattr(entry, name) for name in _ENTRY_FIELDS if name != "audit_id"})


class SqlAccessStore:
    """`AccessStore` on an engine. As of jobs, no transaction reads before it writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def insert_key(self, key: ApiKey, audit: AuditEntry) -> None:
        """Add a key."""
        values = {name: getattr(key, name) for name in _KEY_FIELDS}
        values |= {"role": key.role.value, "scopes": _stored_scopes(key.scopes)}
        with Session(self._engine) as session, session.begin():
            session.add(ApiKeyRow(**values))
            session.add(audit_row(audit))

    def find_key(self, key_id: str) -> ApiKey | None:
        """One key, whatever became of it."""
        with Session(self._engine) as session:
            row = session.get(ApiKeyRow, key_id)
            return None if row is None else _key(row)

    def list_keys(self, projects: frozenset[str] | None, limit: int) -> Sequence[ApiKey]:
        """Keys of some projects, newest first; None for all, those of no single project included."""
        query = select(ApiKeyRow).order_by(ApiKeyRow.created_at.desc(), ApiKeyRow.key_id).limit(limit)
        if projects is not None:
            query = query.where(ApiKeyRow.project.in_(sorted(projects)))
        with Session(self._engine) as session:
            return [_key(row) for row in session.scalars(query)]

    def revoke_key(self, key_id: str, at: datetime, audit: AuditEntry) -> None:
        """Revoke a key that is not; the entry is added only then."""
        statement = update(ApiKeyRow).where(ApiKeyRow.key_id == key_id, ApiKeyRow.revoked_at.is_(None))
        with Session(self._engine) as session, session.begin():
            if session.execute(statement.values(revoked_at=at).returning(ApiKeyRow.key_id)).all():
                session.add(audit_row(audit))

    def note_use(self, key_id: str, at: datetime, not_since: datetime) -> None:
        """Write down that a key was used, unless that stands there for a moment after `not_since`."""
        is_due = or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at <= not_since)
        try:
            with Session(self._engine) as session, session.begin():
                session.execute(update(ApiKeyRow).where(ApiKeyRow.key_id == key_id, is_due).values(last_used_at=at))
        except SQLAlchemyError as error:
            # A database that takes no writes, its disk full, can still be read with a key.
            log.warning("key_use_not_noted", key_id=key_id, reason=type(error).__name__)

    def insert_project(self, project: Project, audit: AuditEntry) -> bool:
        """Add a project; False where there is one of that name, and then nothing is added."""
        row = ProjectRow(name=project.name, created_at=project.created_at, created_by=project.created_by)
        try:
            with Session(self._engine) as session, session.begin():
                session.add(row)
                session.flush()
                session.add(audit_row(audit))
        except IntegrityError:
            if self.has_project(project.name):
                return False
            raise
        return True

    def list_projects(self) -> Sequence[Project]:
        """All projects, by name."""
        with Session(self._engine) as session:
            rows = session.scalars(select(ProjectRow).order_by(ProjectRow.name))
            return [Project(row.name, row.created_at, row.created_by) for row in rows]

    def has_project(self, name: str) -> bool:
        """Whether there is such a project."""
        with Session(self._engine) as session:
            return session.get(ProjectRow, name) is not None

    def record(self, entry: AuditEntry) -> None:
        """Add a row to the audit log."""
        with Session(self._engine) as session, session.begin():
            session.add(audit_row(entry))

    def page_audit(self, wanted: AuditFilter) -> Sequence[AuditEntry]:
        """Rows of the audit log, newest first."""
        query = select(AuditRow).order_by(AuditRow.audit_id.desc()).limit(wanted.limit)
        if wanted.projects is not None:
            query = query.where(AuditRow.project.in_(sorted(wanted.projects)))
        if wanted.principal is not None:
            query = query.where(AuditRow.principal == wanted.principal)
        if wanted.action is not None:
            query = query.where(AuditRow.action == wanted.action)
        if wanted.object is not None:
            query = query.where(AuditRow.object == wanted.object)
        if wanted.before is not None:
            query = query.where(AuditRow.audit_id < wanted.before)
        with Session(self._engine) as session:
            return [
                AuditEntry(**{name: getattr(row, name) for name in _ENTRY_FIELDS}) for row in session.scalars(query)
            ]


def _key(row: ApiKeyRow) -> ApiKey:
    values = {name: getattr(row, name) for name in _KEY_FIELDS}
    values |= {"role": Role(row.role), "scopes": _read_scopes(row.scopes)}
    return ApiKey(**values)


def _stored_scopes(scopes: frozenset[Permission]) -> str:
    """Without what goes without saying: replicas of the version before, which do not know the word, read keys too."""
    unsaid = {Permission.MODELS_WRITE} if scopes >= SCOPES_BEFORE_MODELS_WRITE else set()
    return " ".join(sorted(scopes - unsaid))


def _read_scopes(text: str) -> frozenset[Permission]:
    scopes = frozenset(Permission(scope) for scope in text.split())
    return scopes | {Permission.MODELS_WRITE} if scopes >= SCOPES_BEFORE_MODELS_WRITE else scopes
