"""`/healthz`, `/readyz` and `/metrics`: for supervisors."""

from __future__ import annotations

from typing import Any

import structlog
from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from service.errors import Fault, NotReadyError
from service.feeds.metrics import CONTENT_TYPE
from service.http.desk import HealthDep, MetricsDep, SettingsDep
from service.http.problems import problems
from service.http.schemas import Health, Readiness, ReadyPart

log = structlog.get_logger(__name__)
router = APIRouter(tags=["health"])

_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus's text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/healthz", responses=problems())
async def get_health() -> Health:
    """The process answers; of what it needs, nothing is said."""
    return Health()


@router.get("/readyz", responses=problems(503))
def get_readiness(health: HealthDep, settings: SettingsDep) -> Readiness:
    """Database, tables, this replica's reconciler and Ray are there, each named. Without Ray jobs are still taken, and
    wait; and while the replica that reconciles is late, which is told as `leader`.

    Where keys are asked for, what is wrong with a part stands in the service's log alone.
    """
    # Anybody may ask this, and the addresses of the cluster are nobody's business.
    is_open = settings.access == "open"
    try:
        parts = health.check()
    except NotReadyError as error:
        if is_open:
            raise
        log.warning("not_ready", reason=error.detail)
        faults = [Fault(fault.pointer, fault.rule) for fault in error.faults]
        absent = ", ".join(fault.pointer.rpartition("/")[2] for fault in faults)
        raise NotReadyError(f"Absent: {absent}. The service's log says more.", faults) from error
    return Readiness(
        parts={
            name: ReadyPart(
                state="ok" if part.is_there else "absent",
                needed=part.is_needed,
                detail=part.detail if is_open or part.is_there else "The service's log says more.",
            )
            for name, part in parts.items()
        }
    )


@router.get("/metrics", response_class=PlainTextResponse, responses={**problems(), **_METRICS})
def get_metrics(metrics: MetricsDep) -> Response:
    """Metrics of this replica and of the queue, for Prometheus. Where keys are asked for, `metrics:read` is needed."""
    return Response(metrics.render(), media_type=CONTENT_TYPE)
