"""`/v1/jobs`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from pipelines.specs.plans import Plan
from service.access.principals import Permission
from service.http.authorisation import CallerDep
from service.http.desk import AccessDep, JobsDep, SettingsDep
from service.http.problems import problems
from service.http.routes.bodies import StrictJsonRoute
from service.http.schemas import JOB_ID_PATTERN, JobCreate, JobDetail, JobPage, JobPublic, JobQuery

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictJsonRoute)

JobId = Annotated[str, Path(pattern=JOB_ID_PATTERN)]
IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="Your name for this request: sent again with the same body, it answers with the same job.",
    ),
]
_CREATED_HEADERS = {
    "Location": {"description": "The job.", "schema": {"type": "string"}},
    "Idempotent-Replay": {
        "description": "`true` when an earlier request with this key made the job.",
        "schema": {"type": "string"},
    },
}
CREATED_HEADERS: dict[int | str, dict[str, Any]] = {202: {"headers": _CREATED_HEADERS}}
"""Of `responses=` of a route that makes a job."""


@router.post("/jobs", status_code=202, responses=problems(404, 409, 415) | CREATED_HEADERS)
def create_job(
    request: JobCreate,
    jobs: JobsDep,
    settings: SettingsDep,
    response: Response,
    access: AccessDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> JobPublic:
    """Take a job. It waits its turn; follow it at `Location`."""
    project = access.project_for(caller, request.project, Permission.JOBS_WRITE)
    created = jobs.create(request, idempotency_key, caller=caller, project=project)
    response.headers["Location"] = f"/v1/jobs/{created.job.job_id}"
    if created.is_replay:
        response.headers["Idempotent-Replay"] = "true"
    return JobPublic.from_job(created.job, settings)


@router.get("/jobs", responses=problems())
def list_jobs(query: Annotated[JobQuery, Query()], jobs: JobsDep, settings: SettingsDep, caller: CallerDep) -> JobPage:
    """Jobs of the projects that the principal sees, newest first."""
    assert caller.principal is not None
    found, next_cursor = jobs.page(query, caller.principal.projects_with(Permission.JOBS_READ))
    return JobPage(items=tuple(JobPublic.from_job(job, settings) for job in found), next_cursor=next_cursor)


@router.get("/jobs/{job_id}", responses=problems(404))
def get_job(job_id: JobId, jobs: JobsDep, settings: SettingsDep) -> JobDetail:
    """One job, with its resolved spec."""
    return JobDetail.from_job(jobs.get(job_id), settings)


@router.post("/jobs/{job_id}/cancel", status_code=202, responses=problems(404, 409))
def cancel_job(job_id: JobId, jobs: JobsDep, settings: SettingsDep, caller: CallerDep) -> JobPublic:
    """Ask a job to stop. It saves a checkpoint and leaves; one that does not is ended."""
    return JobPublic.from_job(jobs.cancel(job_id, caller), settings)


@router.post("/jobs:plan", responses=problems(404, 415))
def plan_job(request: JobCreate, jobs: JobsDep, access: AccessDep, caller: CallerDep) -> Plan:
    """The resolved spec and what it would cost: parameters, FLOPs, memory. Nothing is started."""
    return jobs.plan(request, access.project_for(caller, request.project, Permission.JOBS_WRITE))
