"""The words of keys, projects and the audit log over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from service.access.audit import AuditEntry
from service.access.interfaces import Project
from service.access.keys import ApiKey
from service.access.principals import ALL_SCOPES, OwnerName, Permission, Principal, ProjectName, Role
from service.http.schemas import NO_NUL, Answer, Request

MAX_LIFETIME_DAYS = 3650
DEFAULT_LIFETIME_DAYS = 90


class KeyCreate(Request):
    """A key to make."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 '._-]{0,99}$")]
    """What it is for."""
    owner: OwnerName
    """Whose jobs are made with it."""
    project: ProjectName | None = "default"
    """Where it counts; `null` for all projects."""
    role: Role = Role.MEMBER
    scopes: Annotated[frozenset[Permission], Field(min_length=1)] = ALL_SCOPES
    """No more than this, whatever the role allows."""
    lifetime_days: Annotated[int, Field(ge=1, le=MAX_LIFETIME_DAYS)] | None = DEFAULT_LIFETIME_DAYS
    """Days until it expires; `null` for never."""


class KeyPublic(Answer):
    """A key, without its secret."""

    key_id: str
    name: str
    owner: str
    project: str | None
    """Absent: all projects."""
    role: Role
    scopes: tuple[Permission, ...]
    created_at: AwareDatetime
    created_by: str
    expires_at: AwareDatetime | None
    revoked_at: AwareDatetime | None
    last_used_at: AwareDatetime | None
    """To the minute."""

    @classmethod
    def from_key(cls, key: ApiKey) -> KeyPublic:
        """The public view of a row."""
        return cls(**_fields(key))


class KeyCreated(KeyPublic):
    """A new key, with what is shown this once."""

    key: str
    """The whole key. It is kept nowhere."""

    @classmethod
    def made(cls, key: ApiKey, text: str) -> KeyCreated:
        """The public view of a row, and the key."""
        return cls(**_fields(key), key=text)


class KeyList(Answer):
    """Keys, newest first."""

    items: tuple[KeyPublic, ...]


class ProjectCreate(Request):
    """A project to make."""

    name: ProjectName


class ProjectPublic(Answer):
    """A project."""

    name: str
    created_at: AwareDatetime
    permissions: tuple[Permission, ...]
    """What the principal may do there."""

    @classmethod
    def from_project(cls, project: Project, principal: Principal | None) -> ProjectPublic:
        """The project as a principal sees it."""
        allowed = () if principal is None else tuple(sorted(principal.permissions_in(project.name)))
        return cls(name=project.name, created_at=project.created_at, permissions=allowed)


class ProjectList(Answer):
    """Projects by name."""

    items: tuple[ProjectPublic, ...]


class Me(Answer):
    """Who the request was recognised as."""

    owner: str
    method: Literal["open", "key", "oidc"]
    key_id: str | None
    roles: dict[str, Role]
    """By project; `*` for all."""
    scopes: tuple[Permission, ...]
    project: str | None
    """Where jobs go that name none."""

    @classmethod
    def from_principal(cls, principal: Principal) -> Me:
        """The public view."""
        return cls(
            owner=principal.owner,
            method=principal.method,
            key_id=principal.key_id,
            roles=dict(principal.roles),
            scopes=tuple(sorted(principal.scopes)),
            project=principal.project,
        )


class AuditQuery(Request):
    """Which rows of the audit log to list, newest first."""

    principal: Annotated[str, Field(max_length=300, pattern=NO_NUL)] | None = None
    action: Annotated[str, Field(max_length=120, pattern=NO_NUL)] | None = None
    """Such as `job.create`, or `authenticate` for those that failed."""
    object: Annotated[str, Field(max_length=300, pattern=NO_NUL)] | None = None
    project: ProjectName | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    """Rows a page."""
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,9}$")] | None = None
    """`next_cursor` of the page before."""


class AuditItem(Answer):
    """One row of the audit log."""

    audit_id: int
    at: AwareDatetime
    request_id: str
    principal: str
    action: str
    object: str
    project: str | None
    outcome: str
    address: str

    @classmethod
    def from_entry(cls, entry: AuditEntry) -> AuditItem:
        """The public view of a row."""
        return cls(**{name: getattr(entry, name) for name in cls.model_fields})


class AuditPage(Answer):
    """Some rows of the audit log."""

    items: tuple[AuditItem, ...]
    next_cursor: str | None = None
    """Give it as `cursor` for the rows after these; absent at the end."""


def _fields(key: ApiKey) -> dict[str, object]:
    values = {name: getattr(key, name) for name in KeyPublic.model_fields}
    return values | {"scopes": tuple(sorted(key.scopes))}
