"""What people may wish of a job that exists. The desk notes it; the reconciler carries it out.

A wish that is said again changes nothing and gets the same answer. One that cannot be granted is refused with the rule
and the state that speaks against it.
"""

from __future__ import annotations

from collections.abc import Callable

from service.access.audit import AuditEntry, Caller
from service.errors import Fault, JobFinishedError, JobNotFoundError, WrongStateError
from service.http.schemas import JobEdit
from service.interfaces import JobStore
from service.jobs.bounds import Bounds
from service.records import Job
from service.states import JobState


class Wishes:
    """Each raises `JobNotFoundError` where there is no such job."""

    def __init__(self, store: JobStore, wake: Callable[[], None], bounds: Bounds) -> None:
        self._store = store
        self._wake = wake
        self._bounds = bounds

    def cancel(self, job_id: str, caller: Caller) -> Job:
        """It should save a checkpoint and stop.

        Raises:
            JobFinishedError: it is over.
        """
        entry = self._entry("cancel", job_id, caller)
        return self._noted(job_id, self._store.request_cancel(job_id, entry.at, entry), "cancel")

    def kill(self, job_id: str, caller: Caller) -> Job:
        """It should stop at once, without a checkpoint.

        Raises:
            JobFinishedError: it is over.
        """
        entry = self._entry("kill", job_id, caller)
        return self._noted(job_id, self._store.request_kill(job_id, entry.at, entry), "kill")

    def pause(self, job_id: str, caller: Caller) -> Job:
        """It should save a checkpoint and leave its place until it is resumed; a queued job stays out of the queue.

        Raises:
            JobFinishedError: it is over.
            WrongStateError: it is to be cancelled, which outranks a pause.
        """
        entry = self._entry("pause", job_id, caller)
        job = self._noted(job_id, self._store.request_pause(job_id, entry.at, entry), "pause")
        if job.cancel_requested_at is not None:
            raise WrongStateError(job_id, job.state, "pause needs a job that nobody has cancelled")
        return job

    def resume(self, job_id: str, caller: Caller) -> Job:
        """It should go on: back to the queue, and from its checkpoint. One that is pausing gets there first.

        Raises:
            JobFinishedError: it is over.
            WrongStateError: it is not paused and was not asked to, or it is to be cancelled.
        """
        job = self._found(job_id)
        _check_unfinished(job, "resume")
        if job.cancel_requested_at is not None:
            raise WrongStateError(job_id, job.state, "resume needs a job that nobody has cancelled")
        if job.pause_requested_at is None and job.state not in (JobState.PAUSING, JobState.PAUSED):
            raise WrongStateError(job_id, job.state, "resume needs a job that is PAUSED or asked to pause")
        entry = caller.entry("job.resume", job_id, job.project)
        return self._noted(job_id, self._store.withdraw_pause(job_id, entry), "resume")

    def archive(self, job_id: str, caller: Caller, is_archived: bool = True) -> Job:
        """Lists should leave it out, or show it again.

        Raises:
            WrongStateError: it is not over.
        """
        entry = self._entry("archive" if is_archived else "unarchive", job_id, caller)
        job = self._store.set_archived(job_id, is_archived, entry)
        if job is None:
            raise JobNotFoundError(job_id)
        if not job.state.is_terminal and is_archived:
            raise WrongStateError(job_id, job.state, "archive needs a job that is SUCCEEDED, FAILED or CANCELLED")
        return job

    def edit(self, job_id: str, request: JobEdit, caller: Caller) -> Job:
        """Change priority, labels and notes: what the request names; null clears.

        Raises:
            PermissionDeniedError: the priority is more than the caller may give.
        """
        given = request.model_fields_set
        if "priority" in given:
            assert caller.principal is not None
            self._bounds.check_priority(caller.principal, request.priority or 0)
        job = self._store.edit(
            job_id,
            priority=(request.priority or 0) if "priority" in given else None,
            labels=(request.labels or {}) if "labels" in given else None,
            notes=(request.notes or "") if "notes" in given else None,
            audit=self._entry("edit", job_id, caller),
        )
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def _entry(self, verb: str, job_id: str, caller: Caller) -> AuditEntry:
        return caller.entry(f"job.{verb}", job_id, self._found(job_id).project)

    def _found(self, job_id: str) -> Job:
        job = self._store.get(job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def _noted(self, job_id: str, job: Job | None, verb: str) -> Job:
        if job is None:
            raise JobNotFoundError(job_id)
        _check_unfinished(job, verb)
        self._wake()
        return job


def _check_unfinished(job: Job, verb: str) -> None:
    if not job.state.is_terminal:
        return
    since = f" since {job.finished_at:%Y-%m-%d %H:%M:%S} UTC" if job.finished_at is not None else ""
    rule = f"{verb} needs a job that is not over"
    raise JobFinishedError(f"{rule}; {job.job_id} is {job.state}{since}.", [Fault("/state", rule, job.state.value)])
