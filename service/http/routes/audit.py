"""`/v1/audit`: what was changed and refused, by whom."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.access.interfaces import AuditFilter
from service.access.principals import Permission
from service.http.access_schemas import AuditItem, AuditPage, AuditQuery
from service.http.authorisation import CallerDep
from service.http.desk import AccessDep
from service.http.problems import problems

router = APIRouter(prefix="/v1", tags=["access"])


@router.get("/audit", responses=problems())
def list_audit(query: Annotated[AuditQuery, Query()], access: AccessDep, caller: CallerDep) -> AuditPage:
    """Rows of the projects that the principal administers, newest first; of no project, to administrators of all."""
    assert caller.principal is not None
    projects = caller.principal.projects_with(Permission.ADMIN)
    if query.project is not None:
        projects = frozenset({query.project}) if projects is None else projects & {query.project}
    wanted = AuditFilter(
        projects=projects,
        principal=query.principal,
        action=query.action,
        object=query.object,
        before=None if query.cursor is None else int(query.cursor),
        limit=query.limit + 1,  # one more tells whether there is another page
    )
    found = access.store.page_audit(wanted)
    page = found[: query.limit]
    has_more = len(found) > query.limit
    items = tuple(AuditItem.from_entry(entry) for entry in page)
    return AuditPage(items=items, next_cursor=str(items[-1].audit_id) if has_more else None)
