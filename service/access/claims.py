"""From the claims of an OIDC token to a principal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from service.access.principals import ALL_PROJECTS, DEFAULT_PROJECT, OwnerName, Principal, ProjectName, Role

_OWNER: TypeAdapter[str] = TypeAdapter(OwnerName)
_PROJECT: TypeAdapter[str] = TypeAdapter(ProjectName)
_ORDER = tuple(Role)


def read_grant(text: str) -> tuple[str, Role]:
    """`project:role`, or `*:role` for all projects.

    Raises:
        ValueError: it is neither.
    """
    project, _, role = text.rpartition(":")
    try:
        return (project if project == ALL_PROJECTS else _PROJECT.validate_python(project)), Role(role)
    except (ValueError, ValidationError) as error:
        rule = f"must be project:role with a role of {', '.join(Role)}, or *:role"
        raise ValueError(f"{rule}, got {text!r}") from error


def principal_of(
    claims: Mapping[str, Any], user_claim: str, groups_claim: str, grants: Mapping[str, str]
) -> Principal | None:
    """Who a token speaks for; None where its user has no name we can keep.

    Args:
        claims: of a token that was verified.
        user_claim: names the claim that becomes the owner.
        groups_claim: names the claim with the groups: a list of texts, or one text.
        grants: group to `project:role`; several, divided by commas.
    """
    try:
        owner = _OWNER.validate_python(claims.get(user_claim), strict=True)
    except ValidationError:
        return None
    told = claims.get(groups_claim)
    groups = told if isinstance(told, list) else [told]
    roles: dict[str, Role] = {}
    for group in groups:
        for grant in grants.get(group, "").split(",") if isinstance(group, str) else ():
            if grant.strip():
                project, role = read_grant(grant.strip())
                roles[project] = max(role, roles.get(project, role), key=_ORDER.index)
    named = sorted(project for project in roles if project != ALL_PROJECTS)
    home = named[0] if len(named) == 1 and ALL_PROJECTS not in roles else None
    if home is None and (DEFAULT_PROJECT in roles or ALL_PROJECTS in roles):
        home = DEFAULT_PROJECT
    return Principal(owner=owner, roles=roles, method="oidc", project=home)
