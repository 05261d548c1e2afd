"""What became of an attempt, and what the reconciler writes down of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from pipelines.specs.documents import JobResult
from service.dispatch.clocks import SAVE_SECONDS, LookClock
from service.dispatch.verdicts import Limits, limits_of, lost, overrun
from service.interfaces import (
    AttemptState,
    AttemptStatus,
    FolderError,
    JobFolders,
    JobStore,
    Launcher,
    LauncherUnavailableError,
    Runs,
    RunsUnavailableError,
)
from service.records import Job, JobFailure
from service.settings import Settings
from service.states import MAY_BE_TRIED_AGAIN, JobState

log = structlog.get_logger(__name__)

UNKNOWN = AttemptStatus(AttemptState.UNKNOWN)


class Endings:
    """Looks at attempts, and settles those that have ended."""

    def __init__(
        self,
        store: JobStore,
        launcher: Launcher,
        folders: JobFolders,
        runs: Runs,
        settings: Settings,
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._folders = folders
        self._runs = runs
        self._settings = settings
        self._now = now
        self._clock = LookClock(now, settings)
        self.is_ray_reachable = True
        """Said at the start of a round, so that not every job waits for the time-out."""
        self.lingering: dict[str, Job] = {}
        """Jobs that are over by their own word, and whose process may live on: they hold their place still."""

    def _settle(self, job: Job, status: AttemptStatus | None) -> bool:
        """Write down how the attempt ended; False if it has not.

        The result is read after Ray was asked: when Ray says the process is over, no result can come later.
        """
        result = self._folders.read_result(job.job_id)
        # An earlier attempt, thought lost, may have got to its end after all; its failure is no news.
        is_late = result is not None and is_over(status) and result.state == "SUCCEEDED"
        if result is not None and (result.attempt == job.attempt or is_late):
            return self._settle_result(job, status, result)
        if not is_over(status):
            return False
        if job.cancel_requested_at is not None:
            return self._finish(job, JobState.CANCELLED, is_log_saved=self._save_log(job))
        failure = overrun(job, self._limits(job))
        if failure is not None:
            return self._finish(job, JobState.FAILED, failure=failure, is_log_saved=self._save_log(job))
        if is_to_pause(job):
            return self._pause(job, status)
        return self._next_attempt(job, lost(job, status, self._limits(job)))

    def _settle_result(self, job: Job, status: AttemptStatus | None, result: JobResult) -> bool:
        """The job's own word, which outranks Ray's."""
        match result.state:
            case "SUCCEEDED":
                is_settled = self._finish(job, JobState.SUCCEEDED, result=result, failure=None)
            case "FAILED":
                is_settled = self._settle_failure(job, status, result)
            case "CANCELLED" | "PAUSED":
                is_settled = self._settle_stop(job, status, result)
        if is_settled and not is_over(status):
            self.lingering[job.job_id] = replace(job, stop_asked_at=job.stop_asked_at or self._now())
        return is_settled

    def _settle_stop(self, job: Job, status: AttemptStatus | None, result: JobResult) -> bool:
        """It was told to stop. What for, the row knows better: the wish may have changed since the job read it."""
        failure = overrun(job, self._limits(job))
        if job.cancel_requested_at is None and failure is not None:
            return self._finish(job, JobState.FAILED, failure=failure)
        if job.cancel_requested_at is None and (result.state == "PAUSED" or is_to_pause(job)):
            if not is_over(status):
                return self._leave(job, status)
            return self._pause(job, status)
        # Of a job that thinks it is paused, the run is still to be closed.
        told = {"result": result} if result.state == "CANCELLED" else {}
        return self._finish(job, JobState.CANCELLED, failure=None, **told)

    def _settle_failure(self, job: Job, status: AttemptStatus | None, result: JobResult) -> bool:
        failure = JobFailure(code="internal", message="The job failed without saying why.", attempt=result.attempt)
        if result.failure is not None:
            failure = JobFailure.from_document(result.failure, result.attempt)
        can_retry = result.failure is not None and result.failure.can_retry and MAY_BE_TRIED_AGAIN[failure.reason]
        if can_retry and job.cancel_requested_at is not None:
            return self._finish(job, JobState.CANCELLED, result=result, failure=failure)
        is_last = not is_to_pause(job) and self._is_last(job)
        if not can_retry or is_last:
            return self._finish(job, JobState.FAILED, result=result, failure=failure)
        if not is_over(status):
            return self._leave(job, status)  # two attempts never run side by side: this one has to leave first
        if is_to_pause(job):
            return self._pause(job, status, failure=failure)
        return self._next_attempt(job, failure)

    def _leave(self, job: Job, status: AttemptStatus | None) -> bool:
        """The result is there and the process is on its way out; one that hangs is stopped."""
        said_at = job.heartbeat_seen_at or self._now()
        if status is not UNKNOWN and self._now() - said_at >= self._grace:
            self._stop_attempt(job)
        return False

    def _pause(self, job: Job, status: AttemptStatus | None, **changes: object) -> bool:
        """The process has left: nothing of the job runs any more."""
        assert is_over(status)
        self._save_log(job)
        self._end_run(job, JobState.PAUSED)
        self._clock.forget(job)
        self._move(job, JobState.PAUSED, stop_asked_at=None, not_before_at=None, **changes)
        return True

    def _next_attempt(self, job: Job, failure: JobFailure) -> bool:
        is_log_saved = self._save_log(job)
        if not MAY_BE_TRIED_AGAIN[failure.reason] or self._is_last(job):
            return self._finish(job, JobState.FAILED, failure=failure, is_log_saved=is_log_saved)
        delay = timedelta(seconds=self._settings.retry_delay_seconds * 2.0**job.num_failures)
        self._clock.forget(job)
        self._move(
            job,
            JobState.STARTING,
            attempt=job.attempt + 1,
            num_failures=job.num_failures + 1,
            failure=failure,
            not_before_at=self._now() + delay,
            **FRESH,
        )
        return True

    def _is_last(self, job: Job) -> bool:
        return job.num_failures + 1 >= self._settings.max_attempts

    def look_away(self) -> None:
        """Another replica reconciles."""
        self._clock.forget_all()
        self.lingering.clear()

    # ── looking, writing ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _grace(self) -> timedelta:
        return timedelta(seconds=self._settings.cancel_grace_seconds)

    def _limits(self, job: Job) -> Limits:
        return limits_of(job, self._settings)

    def _look(self, job: Job) -> AttemptStatus | None:
        """Ray's word on the current attempt: None if it has never heard of it, `UNKNOWN` if it says nothing."""
        if job.ray_submission_id is None:
            return None
        if not self.is_ray_reachable:
            return UNKNOWN
        try:
            status = self._launcher.status(job.ray_submission_id)
        except LauncherUnavailableError as error:
            log.warning("ray_unavailable", error=str(error))
            return UNKNOWN
        return UNKNOWN if status is not None and status.state is AttemptState.UNKNOWN else status

    def _copy_progress(self, job: Job, is_running: bool = False) -> Job:
        """The job with its newest progress and, while it runs, the time it has been seen to."""
        progress = self._folders.read_progress(job.job_id)
        seconds = 0.0
        if is_running:
            seconds = self._clock.look(job)
        else:
            self._clock.miss(job)
        counted: dict[str, Any] = {
            "running_seconds": job.running_seconds + seconds,
            "silent_seconds": job.silent_seconds + seconds,
        }
        if progress is not None and progress.attempt == job.attempt and progress != job.progress:
            heard = counted | {"silent_seconds": 0.0}
            self._clock.saved(job)
            return self._store.update(job, progress=progress, heartbeat_seen_at=self._now(), **heard)
        if seconds >= SAVE_SECONDS:
            self._clock.saved(job)
            return self._store.update(job, **counted)
        return replace(job, **counted)

    def _save_log(self, job: Job) -> bool:
        """Copy what the attempt printed off the head's disk, which goes with the head; False if that cannot be had now.

        No job waits for it: of a head that was moved Ray knows the job and not its log, and fails for ever to read it.
        """
        if job.ray_submission_id is None:
            return True
        try:
            printed = self._launcher.read_log(job.ray_submission_id)
            if printed:
                self._folders.save_log(job.job_id, job.attempt, printed)
        except (LauncherUnavailableError, FolderError) as error:
            log.warning("log_not_saved", ray_submission_id=job.ray_submission_id, error=str(error)[:300])
            return False
        return True

    def _stop_attempt(self, job: Job) -> None:
        assert job.ray_submission_id is not None
        log.info("attempt_stopped", ray_submission_id=job.ray_submission_id)
        self._launcher.stop(job.ray_submission_id)

    def _finish(self, job: Job, state: JobState, **changes: object) -> bool:
        if "result" not in changes:
            self._end_run(job, state)
        self._clock.forget(job)
        self._move(job, state, finished_at=self._now(), **changes)
        return True

    def _end_run(self, job: Job, state: JobState) -> None:
        """MLflow never learns of a killed process: without a result the job has not said that its run is over."""
        if job.progress is None or job.progress.mlflow_run_id is None:
            return
        try:
            self._runs.end(job.progress.mlflow_run_id, state)
        except RunsUnavailableError as error:  # the job's own state is not held up by it
            log.warning("run_left_open", run_id=job.progress.mlflow_run_id, error=str(error))

    def _move(self, job: Job, state: JobState, **changes: object) -> None:
        moved = self._store.update(job, state=state, running_seconds=job.running_seconds, **changes)
        log.info("job_moved", before=job.state, after=state, next_attempt=moved.attempt)


FRESH: dict[str, object] = {
    "stop_asked_at": None,
    "run_started_at": None,
    "starting_seconds": 0.0,
    "silent_seconds": 0.0,
}
"""Of an attempt that has not begun."""
NOT_WAITING: dict[str, object] = {"waiting_reason": None, "waiting_message": None, "queue_position": None}
"""Of a job that leaves the queue, or that nobody has looked at there."""


def is_over(status: AttemptStatus | None) -> bool:
    """Whether nothing of the attempt runs any more."""
    return status is None or status.state.is_terminal


def is_to_pause(job: Job) -> bool:
    """Whether the job leaves its place once its process is gone. A pause that was begun is gone through with, even
    where the wish was withdrawn since: the job is then queued again at once.
    """
    return job.state is JobState.PAUSING or job.pause_requested_at is not None
