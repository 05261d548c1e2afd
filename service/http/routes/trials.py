"""`/v1/jobs/{job_id}/trials`: what a search has tried."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.http.desk import JobsDep, TrialsDep
from service.http.problems import problems
from service.http.routes.jobs import JobId
from service.http.schemas import TrialPage, TrialQuery

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.get("/jobs/{job_id}/trials", responses=problems(404, 409, 503))
def list_trials(job_id: JobId, query: Annotated[TrialQuery, Query()], jobs: JobsDep, trials: TrialsDep) -> TrialPage:
    """The trials of a search so far, page by page. While it runs, a sorted page may change under the reader."""
    return trials.page(jobs.get(job_id), query)
