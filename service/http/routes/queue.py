"""`/v1/queue` and `/v1/quotas`: who waits and why, and how much may run."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response

from service.access.principals import OwnerName, Permission
from service.errors import ProjectNotFoundError
from service.http.authorisation import CallerDep
from service.http.desk import AccessDep, QueueDep, SettingsDep
from service.http.problems import problems
from service.http.queue_schemas import SCOPES, QueuePublic, QuotaList, QuotaPublic, QuotaPut
from service.http.routes.bodies import StrictJsonRoute
from service.queueing.records import Quota

router = APIRouter(prefix="/v1", tags=["queue"], route_class=StrictJsonRoute)

ScopePath = Annotated[Literal["owners", "projects"], Path()]
NamePath = Annotated[OwnerName, Path(description="Of the owner or of the project.")]


@router.get("/queue", responses=problems())
def show_queue(queue: QueueDep, settings: SettingsDep, caller: CallerDep) -> QueuePublic:
    """Jobs that wait, in their order and each with the reason, and what runs, of the projects that the principal
    sees; what their owners hold there, and what the cluster has.
    """
    assert caller.principal is not None
    visible = caller.principal.projects_with(Permission.JOBS_READ)
    return QueuePublic.from_state(queue.show(visible, caller.principal.owner), settings)


@router.get("/quotas", responses=problems())
def list_quotas(queue: QueueDep) -> QuotaList:
    """Quotas of the settings, and those that owners and projects have of their own."""
    quotas, exceptions = queue.quotas()
    return QuotaList.of(quotas, tuple(exceptions))


@router.get("/quotas/{scope}/{name}", responses=problems(404))
def get_quota(scope: ScopePath, name: NamePath, queue: QueueDep) -> QuotaPublic:
    """The quota of its own that an owner or a project has."""
    return QuotaPublic.from_exception(queue.quota(SCOPES[scope], name))


@router.put("/quotas/{scope}/{name}", responses=problems(404, 415))
def put_quota(
    scope: ScopePath, name: NamePath, request: QuotaPut, queue: QueueDep, access: AccessDep, caller: CallerDep
) -> QuotaPublic:
    """Give an owner or a project a quota of its own, in place of the settings'. Jobs that run go on."""
    if scope == "projects" and not access.store.has_project(name):
        raise ProjectNotFoundError(name)
    quota = Quota(request.max_running_jobs, request.max_cpus, request.max_gpus)
    return QuotaPublic.from_exception(queue.set_quota(SCOPES[scope], name, quota, caller))


@router.delete("/quotas/{scope}/{name}", status_code=204, responses=problems(404))
def delete_quota(scope: ScopePath, name: NamePath, queue: QueueDep, caller: CallerDep) -> Response:
    """Let the settings count again."""
    queue.remove_quota(SCOPES[scope], name, caller)
    return Response(status_code=204)
