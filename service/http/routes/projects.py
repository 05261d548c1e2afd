"""`/v1/projects`: what jobs, models and keys belong to."""

from __future__ import annotations

from fastapi import APIRouter

from service.http.access_schemas import ProjectCreate, ProjectList, ProjectPublic
from service.http.authorisation import CallerDep
from service.http.desk import AccessDep
from service.http.problems import problems
from service.http.routes.bodies import StrictJsonRoute

router = APIRouter(prefix="/v1", tags=["access"], route_class=StrictJsonRoute)


@router.get("/projects", responses=problems())
def list_projects(access: AccessDep, caller: CallerDep) -> ProjectList:
    """The projects that the principal sees, by name."""
    found = access.projects(caller)
    return ProjectList(items=tuple(ProjectPublic.from_project(one, caller.principal) for one in found))


@router.post("/projects", status_code=201, responses=problems(409, 415))
def create_project(request: ProjectCreate, access: AccessDep, caller: CallerDep) -> ProjectPublic:
    """Make a project. There is no way to delete one: what was made in it keeps its name."""
    return ProjectPublic.from_project(access.create_project(caller, request.name), caller.principal)
