"""`/healthz` and `/readyz`: for supervisors."""

from __future__ import annotations

import structlog
from fastapi import APIRouter

from service.errors import NotReadyError
from service.http.desk import JobsDep, SettingsDep
from service.http.problems import problems
from service.http.schemas import Health

log = structlog.get_logger(__name__)
router = APIRouter(tags=["health"])


@router.get("/healthz", responses=problems())
async def get_health() -> Health:
    """The process answers; of what it needs, nothing is said."""
    return Health()


@router.get("/readyz", responses=problems(503))
def get_readiness(jobs: JobsDep, settings: SettingsDep) -> Health:
    """Database, reconciler and Ray are there. Without Ray jobs are still taken, and wait."""
    try:
        jobs.check_ready()
    except NotReadyError as error:
        if settings.access == "open":
            raise
        # Anybody may ask this, and the addresses of the cluster are nobody's business.
        log.warning("not_ready", reason=error.detail)
        raise NotReadyError("Something the service needs is away; its log says what.") from error
    return Health()
