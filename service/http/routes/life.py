"""`/v1/jobs/{job_id}/…`: what may be wished of a job, and new jobs from old ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from service.access.audit import Caller
from service.http.authorisation import CallerDep
from service.http.desk import JobsDep, SettingsDep
from service.http.problems import problems
from service.http.routes.bodies import StrictJsonRoute
from service.http.routes.jobs import CREATED_HEADERS, IdempotencyKeyHeader, JobId
from service.http.schemas import JobAgain, JobEdit, JobPublic
from service.jobs.again import Again
from service.jobs.jobs import Created
from service.settings import Settings

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictJsonRoute)

_NOTHING = JobAgain()


@dataclass(frozen=True)
class _AskedAgain:
    """A request for a new job from an old one."""

    job_id: str
    request: JobAgain
    idempotency_key: str | None
    caller: Caller
    settings: Settings
    response: Response

    def answer(self, make: Callable[..., Created]) -> JobPublic:
        """Make the job, one way or the other, and say so."""
        created = make(self.job_id, self.request, self.idempotency_key, caller=self.caller)
        self.response.headers["Location"] = f"/v1/jobs/{created.job.job_id}"
        if created.is_replay:
            self.response.headers["Idempotent-Replay"] = "true"
        return JobPublic.from_job(created.job, self.settings)


@router.patch("/jobs/{job_id}", responses=problems(404, 415))
def edit_job(job_id: JobId, request: JobEdit, jobs: JobsDep, settings: SettingsDep, caller: CallerDep) -> JobPublic:
    """Change priority, labels or notes. What is absent stays as it is; null clears."""
    return JobPublic.from_job(jobs.wishes.edit(job_id, request, caller), settings)


@router.post("/jobs/{job_id}/kill", status_code=202, responses=problems(404, 409))
def kill_job(job_id: JobId, jobs: JobsDep, settings: SettingsDep, caller: CallerDep) -> JobPublic:
    """End a job at once. What it has learned since its last checkpoint is lost."""
    return JobPublic.from_job(jobs.wishes.kill(job_id, caller), settings)


@router.post("/jobs/{job_id}/pause", status_code=202, responses=problems(404, 409))
def pause_job(job_id: JobId, jobs: JobsDep, settings: SettingsDep, caller: CallerDep) -> JobPublic:
    """Ask a job to save a checkpoint and to make room. A queued job waits outside the queue."""
    return JobPublic.from_job(jobs.wishes.pause(job_id, caller), settings)


@router.post("/jobs/{job_id}/resume", status_code=202, responses=problems(404, 409))
def resume_job(job_id: JobId, jobs: JobsDep, settings: SettingsDep, caller: CallerDep) -> JobPublic:
    """Put a paused job back into the queue; it goes on from its checkpoint to the same weights, bit for bit."""
    return JobPublic.from_job(jobs.wishes.resume(job_id, caller), settings)


@router.post("/jobs/{job_id}/archive", responses=problems(404, 409))
def archive_job(job_id: JobId, jobs: JobsDep, settings: SettingsDep, caller: CallerDep) -> JobPublic:
    """Leave a finished job out of lists. Nothing of it is deleted."""
    return JobPublic.from_job(jobs.wishes.archive(job_id, caller), settings)


@router.post("/jobs/{job_id}/unarchive", responses=problems(404))
def unarchive_job(job_id: JobId, jobs: JobsDep, settings: SettingsDep, caller: CallerDep) -> JobPublic:
    """Show a job in lists again."""
    return JobPublic.from_job(jobs.wishes.archive(job_id, caller, is_archived=False), settings)


def _asked_again(
    job_id: JobId,
    settings: SettingsDep,
    response: Response,
    caller: CallerDep,
    request: JobAgain = _NOTHING,
    idempotency_key: IdempotencyKeyHeader = None,
) -> _AskedAgain:
    return _AskedAgain(job_id, request, idempotency_key, caller, settings, response)


AskedAgainDep = Annotated[_AskedAgain, Depends(_asked_again)]


@router.post("/jobs/{job_id}/retry", status_code=202, responses=problems(404, 409, 415) | CREATED_HEADERS)
def retry_job(asked: AskedAgainDep, jobs: JobsDep) -> JobPublic:
    """Try a failed or cancelled job again, as a new job that goes on with what the old one left.

    `goes_on_with` in the answer says what is taken over. Models and the corpus are those of the old job.
    """
    return asked.answer(Again(jobs).retry)


@router.post("/jobs/{job_id}/clone", status_code=202, responses=problems(404, 409, 415) | CREATED_HEADERS)
def clone_job(asked: AskedAgainDep, jobs: JobsDep) -> JobPublic:
    """Make a new job from the spec of another one, with overrides, from the start.

    Aliases of models and sources are looked up anew.
    """
    return asked.answer(Again(jobs).clone)
