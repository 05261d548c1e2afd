"""What keeps keys, projects and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from service.access.audit import AuditEntry
from service.access.keys import ApiKey


@dataclass(frozen=True)
class Project:
    """A name that jobs, models and keys belong to."""

    name: str
    created_at: datetime
    created_by: str


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """Which rows of the audit log to read, newest first."""

    projects: frozenset[str] | None = None
    """Only rows of these projects; None for all rows, those of no project included."""
    principal: str | None = None
    action: str | None = None
    object: str | None = None
    before: int | None = None
    """Only rows with a smaller `audit_id`."""
    limit: int = 50


class AccessStore(Protocol):
    """Every method is one transaction; an entry of the audit log is part of the one it is given to."""

    def insert_key(self, key: ApiKey, audit: AuditEntry) -> None:
        """Add a key."""

    def find_key(self, key_id: str) -> ApiKey | None:
        """One key, whatever became of it."""

    def list_keys(self, projects: frozenset[str] | None, limit: int) -> Sequence[ApiKey]:
        """Keys of some projects, newest first; None for all, those of no single project included."""

    def revoke_key(self, key_id: str, at: datetime, audit: AuditEntry) -> None:
        """Revoke a key that is not; the entry is added only then."""

    def note_use(self, key_id: str, at: datetime, not_since: datetime) -> None:
        """Write down that a key was used, unless that stands there for a moment after `not_since`. What cannot be
        written is passed over.
        """

    def insert_project(self, project: Project, audit: AuditEntry) -> bool:
        """Add a project; False where there is one of that name, and then nothing is added."""

    def list_projects(self) -> Sequence[Project]:
        """All projects, by name."""

    def has_project(self, name: str) -> bool:
        """Whether there is such a project."""

    def record(self, entry: AuditEntry) -> None:
        """Add a row to the audit log."""

    def page_audit(self, wanted: AuditFilter) -> Sequence[AuditEntry]:
        """Rows of the audit log, newest first."""
