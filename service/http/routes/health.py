"""`/healthz`, `/readyz` and `/metrics`: for supervisors."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from service.feeds.metrics import CONTENT_TYPE
from service.http.desk import HealthDep, MetricsDep
from service.http.problems import problems
from service.http.schemas import Health, Readiness, ReadyPart

router = APIRouter(tags=["health"])

_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus's text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/healthz", responses=problems())
async def get_health() -> Health:
    """The process answers; of what it needs, nothing is said."""
    return Health()


@router.get("/readyz", responses=problems(503))
def get_readiness(health: HealthDep) -> Readiness:
    """Database, tables, reconciler and Ray are there, each named. Without Ray jobs are still taken, and wait."""
    parts = health.check()
    return Readiness(
        parts={
            name: ReadyPart(state="ok" if part.is_there else "absent", needed=part.is_needed, detail=part.detail)
            for name, part in parts.items()
        }
    )


@router.get("/metrics", response_class=PlainTextResponse, responses={**problems(), **_METRICS})
def get_metrics(metrics: MetricsDep) -> Response:
    """Metrics of this replica and of the queue, for Prometheus."""
    return Response(metrics.render(), media_type=CONTENT_TYPE)
