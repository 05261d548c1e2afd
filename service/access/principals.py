"""Who asks, and what they may do where. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import StringConstraints

DEFAULT_PROJECT = "default"
ALL_PROJECTS = "*"
"""In place of a project's name: a role that counts in each of them, those to come included."""
LOCAL_OWNER = "local"
"""Who everything belongs to while no keys are asked for."""

ProjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40)]
"""Lower-case words joined by single dashes: two dashes end a project's name in those of its models."""
OwnerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@|:+-]{0,199}$")]
"""A person or a program: a mail address or an issuer's subject has room."""


class Permission(StrEnum):
    """What can be allowed; also the scopes that a key can be narrowed to."""

    JOBS_READ = "jobs:read"
    """Jobs, with their logs, trials and results."""
    JOBS_WRITE = "jobs:write"
    """Submit and plan jobs, and stop one's own."""
    MODELS_READ = "models:read"
    """See, try and download registered models."""
    MODELS_WRITE = "models:write"
    """Move the aliases of registered models."""
    METRICS_READ = "metrics:read"
    """Figures of the whole service at `/metrics`, which takes it in all projects; administrators have it."""
    ADMIN = "admin"
    """Others' jobs, keys and the audit log of the project; of all projects also the projects themselves."""


class Role(StrEnum):
    """What a principal is in a project."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


_VIEWER = frozenset({Permission.JOBS_READ, Permission.MODELS_READ})
_MEMBER = _VIEWER | {Permission.JOBS_WRITE, Permission.MODELS_WRITE}
PERMISSIONS: Mapping[Role, frozenset[Permission]] = MappingProxyType(
    {Role.VIEWER: _VIEWER, Role.MEMBER: _MEMBER, Role.ADMIN: frozenset(Permission)}
)
ALL_SCOPES = frozenset(Permission)
SCOPES_BEFORE_MODELS_WRITE = ALL_SCOPES - {Permission.MODELS_WRITE}
"""Every scope there was before that one: a key with all of them may do whatever its role allows, then and now."""


@dataclass(frozen=True, kw_only=True)
class Principal:
    """A person or program that was recognised."""

    owner: str
    """What they submit belongs to this name."""
    roles: Mapping[str, Role]
    """By project; `*` for all."""
    scopes: frozenset[Permission] = ALL_SCOPES
    """No more than this is allowed, whatever the roles are."""
    method: Literal["open", "key", "oidc"]
    key_id: str | None = None
    project: str | None = None
    """Where jobs go that name no project."""

    @property
    def name(self) -> str:
        """As the audit log has it."""
        return self.owner if self.key_id is None else f"{self.owner} key {self.key_id}"

    def permissions_in(self, project: str) -> frozenset[Permission]:
        """What is allowed in a project; nothing where there is no role in it."""
        given = {self.roles.get(ALL_PROJECTS), self.roles.get(project)} - {None}
        allowed: frozenset[Permission] = frozenset().union(*(PERMISSIONS[role] for role in given if role is not None))
        return allowed & self.scopes

    def sees(self, project: str) -> bool:
        """Whether the project exists for them."""
        return ALL_PROJECTS in self.roles or project in self.roles

    def may(self, permission: Permission, project: str) -> bool:
        """Whether something is allowed in a project."""
        return permission in self.permissions_in(project)

    def may_everywhere(self, permission: Permission) -> bool:
        """Whether it is allowed in every project."""
        return self.may(permission, ALL_PROJECTS)

    def projects_with(self, permission: Permission) -> frozenset[str] | None:
        """The projects where something is allowed; None for all."""
        if self.may_everywhere(permission):
            return None
        return frozenset(project for project in self.roles if self.may(permission, project))

    def may_somewhere(self, permission: Permission) -> bool:
        """Whether it is allowed in any project."""
        return self.projects_with(permission) != frozenset()


LOCAL = Principal(owner=LOCAL_OWNER, roles={ALL_PROJECTS: Role.ADMIN}, method="open", project=DEFAULT_PROJECT)
"""The one user of a service that asks for no keys and listens to this machine alone."""
