"""What the audit log keeps of a request, and who made it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from service.access.escaping import escape
from service.access.principals import LOCAL, Principal

ANONYMOUS = "anonymous"


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """One row. No bodies, no specs, no secrets; texts are escaped when a row is made."""

    at: datetime
    request_id: str
    principal: str
    action: str
    """`job.create`, `key.revoke` and so on; `authenticate` where that failed."""
    object: str
    """A job's id, a key's id, a project, or the path where there is none of these."""
    project: str | None
    outcome: str
    """`done`, or `refused` and the status of the answer."""
    address: str
    audit_id: int | None = None
    """Counts up; given by the database."""
    on_kept: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    """Called by a store that has written the row with what it tells of, after the commit; no part of the row."""


@dataclass
class Caller:
    """A request's principal, and where it came from."""

    principal: Principal | None
    """None: not recognised, which public paths allow."""
    request_id: str = ""
    address: str = ""
    project: str | None = None
    """What the request is about, once that is known to be a project that the principal sees."""
    has_record: bool = field(default=False, compare=False)
    """A row of the audit log was written with what the request did, in the same transaction."""

    def entry(self, action: str, object_: str, project: str | None, outcome: str = "done") -> AuditEntry:
        """A row about this request."""
        return AuditEntry(
            at=datetime.now(UTC),
            request_id=escape(self.request_id, 100),
            principal=escape(ANONYMOUS if self.principal is None else self.principal.name, 250),
            action=escape(action, 100),
            object=escape(object_, 300),
            project=project,
            outcome=escape(outcome, 100),
            address=escape(self.address, 100),
            on_kept=self._note_kept,
        )

    def _note_kept(self) -> None:
        self.has_record = True


def local_caller() -> Caller:
    """A call that no request made: of the single user of this machine."""
    return Caller(LOCAL)
