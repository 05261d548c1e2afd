"""What a principal may do with a route: looked up in `rules.py` before any handler runs."""

from __future__ import annotations

import re
from typing import Annotated

import structlog
from fastapi import Depends, Request

from service.access.audit import Caller
from service.access.principals import Permission, Principal
from service.errors import JobNotFoundError, ModelNotFoundError, PermissionDeniedError
from service.http.authentication import ABOUT_KEY, CALLER_KEY, RULE_KEY
from service.http.desk import Desk
from service.http.rules import RULES, On, Rule
from service.http.schemas import JOB_ID_PATTERN
from service.jobs.namespaces import project_of

log = structlog.get_logger(__name__)
_JOB_ID = re.compile(JOB_ID_PATTERN)


def authorise(request: Request) -> None:
    """Let a request through to its handler, or not.

    Raises:
        PermissionDeniedError: what is asked may be seen and not done; or the route has no rule.
        JobNotFoundError: there is no such job, or none that the principal sees.
        ModelNotFoundError: the model's project is none that the principal sees.
    """
    route = request.scope["route"]
    rule = RULES.get((request.method, route.path))
    if rule is None:
        log.error("route_without_rule", method=request.method, route=route.path)
        raise PermissionDeniedError(f"{request.method} {route.path} has no rule of access, so nobody may use it.")
    request.scope[RULE_KEY] = rule
    if rule.on is On.NOTHING:
        return
    caller = request.scope[CALLER_KEY]
    assert isinstance(caller, Caller)
    assert caller.principal is not None, f"{route.path} must be public for both or for neither"
    _check(request, rule, caller.principal)


def _check(request: Request, rule: Rule, principal: Principal) -> None:
    permission = rule.permission
    if rule.on is On.SOME_PROJECT and permission is not None and not principal.may_somewhere(permission):
        raise PermissionDeniedError(f"This takes the permission {permission} in some project.")
    if rule.on is On.ALL_PROJECTS and permission is not None and not principal.may_everywhere(permission):
        raise PermissionDeniedError(f"This takes the permission {permission} in all projects.")
    if rule.on in (On.JOB, On.JOB_OF_ANYBODY):
        _check_job(request, rule, principal)
    if rule.on is On.MODEL:
        name = str(request.path_params.get("name", ""))
        project = project_of(name)
        request.scope[ABOUT_KEY] = (name, project)
        if not principal.sees(project):
            raise ModelNotFoundError(f"There is no model {name[:200]!r}.")
        _check_permission(principal, permission, project)


def _check_job(request: Request, rule: Rule, principal: Principal) -> None:
    job_id = str(request.path_params.get("job_id", ""))
    if _JOB_ID.fullmatch(job_id) is None:
        return  # no job is called so: the handler says what an id looks like
    desk = request.app.state.desk
    assert isinstance(desk, Desk)
    request.scope[ABOUT_KEY] = (job_id, None)
    job = desk.jobs.get(job_id)
    if not principal.sees(job.project):
        raise JobNotFoundError(job_id)
    request.scope[ABOUT_KEY] = (job_id, job.project)
    takes_own = rule.on is On.JOB and rule.permission is Permission.JOBS_WRITE
    if takes_own and job.owner != principal.owner and not principal.may(Permission.ADMIN, job.project):
        _check_permission(principal, rule.permission, job.project)
        raise PermissionDeniedError(
            f"{job_id} is another's: this takes the permission {Permission.ADMIN} in project {job.project!r}."
        )
    _check_permission(principal, rule.permission, job.project)


def _check_permission(principal: Principal, permission: Permission | None, project: str) -> None:
    if permission is not None and not principal.may(permission, project):
        raise PermissionDeniedError(f"This takes the permission {permission} in project {project!r}.")


def _caller(request: Request) -> Caller:
    caller = request.scope[CALLER_KEY]
    assert isinstance(caller, Caller)
    return caller


CallerDep = Annotated[Caller, Depends(_caller)]
