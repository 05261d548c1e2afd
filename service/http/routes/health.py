"""`/healthz` and `/readyz`: for supervisors."""

from __future__ import annotations

from fastapi import APIRouter

from service.http.desk import JobsDep
from service.http.problems import problems
from service.http.schemas import Health

router = APIRouter(tags=["health"])


@router.get("/healthz", responses=problems())
async def get_health() -> Health:
    """The process answers; of what it needs, nothing is said."""
    return Health()


@router.get("/readyz", responses=problems(503))
def get_readiness(jobs: JobsDep) -> Health:
    """Database, reconciler and Ray are there. Without Ray jobs are still taken, and wait."""
    jobs.check_ready()
    return Health()
