"""The client's calls for keys, projects and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.access.principals import Permission, Role
from service.client.connection import Connection, segment
from service.http.access_schemas import (
    DEFAULT_LIFETIME_DAYS,
    AuditPage,
    KeyCreated,
    KeyList,
    KeyPublic,
    Me,
    ProjectList,
    ProjectPublic,
)


class AccessCalls(Connection):
    """Part of `ElectraClient`."""

    def me(self) -> Me:
        """Who the service takes us for."""
        return self._read(Me, self._call("GET", "/v1/me", is_safe=True))

    def create_key(
        self,
        name: str,
        owner: str,
        *,
        project: str | None = "default",
        role: Role = Role.MEMBER,
        scopes: Sequence[Permission] | None = None,
        lifetime_days: int | None = DEFAULT_LIFETIME_DAYS,
    ) -> KeyCreated:
        """Make a key. The answer has the whole of it, which is shown only this once.

        Args:
            name: what it is for.
            owner: whose jobs are made with it.
            project: where it counts; None for all.
            role: in the project.
            scopes: no more than these; all when absent.
            lifetime_days: None for a key that never expires.
        """
        body: dict[str, Any] = {
            "name": name,
            "owner": owner,
            "project": project,
            "role": role,
            "lifetime_days": lifetime_days,
        }
        if scopes is not None:
            body["scopes"] = sorted(scopes)
        # Not repeated: a lost answer is a key that nobody has, and a second one would be two.
        return self._read(KeyCreated, self._call("POST", "/v1/keys", is_safe=False, json=body))

    def keys(self) -> tuple[KeyPublic, ...]:
        """Keys of the projects that we administer, newest first."""
        found = self._read(KeyList, self._call("GET", "/v1/keys", is_safe=True))
        return found.items

    def revoke_key(self, key_id: str) -> KeyPublic:
        """Make a key worthless, at once."""
        path = f"/v1/keys/{segment(key_id)}/revoke"
        return self._read(KeyPublic, self._call("POST", path, is_safe=True))

    def projects(self) -> tuple[ProjectPublic, ...]:
        """The projects that we see, by name."""
        found = self._read(ProjectList, self._call("GET", "/v1/projects", is_safe=True))
        return found.items

    def create_project(self, name: str) -> ProjectPublic:
        """Make a project."""
        answer = self._call("POST", "/v1/projects", is_safe=False, json={"name": name})
        return self._read(ProjectPublic, answer)

    def audit(self, *, limit: int = 50, cursor: str | None = None, **wanted: str | None) -> AuditPage:
        """One page of the audit log, newest first; `wanted` as of `GET /v1/audit`."""
        query = {"limit": limit, "cursor": cursor, **wanted}
        params = {key: value for key, value in query.items() if value is not None}
        return self._read(AuditPage, self._call("GET", "/v1/audit", is_safe=True, params=params))
