"""What the reconciler does with one job: one `match` on the persisted state.

Each case makes at most one side effect and then writes the state, and every side effect may be made again. The
process can die between any two lines here: the next one starts over from the row.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from pipelines.specs.documents import JobResult
from service.interfaces import (
    AttemptState,
    AttemptStatus,
    JobFolders,
    JobStore,
    Launcher,
    LauncherUnavailableError,
    LaunchRejectedError,
    Runs,
    RunsUnavailableError,
)
from service.launches import attempt_launch
from service.records import Job, JobFailure
from service.settings import Settings
from service.states import JobState

log = structlog.get_logger(__name__)

LOG_PATIENCE = timedelta(hours=1)
"""How long a finished job's log is waited for while Ray is out of reach."""
_UNKNOWN = AttemptStatus(AttemptState.UNKNOWN)


class JobSteps:
    """Moves one job along by one step."""

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
        self.is_ray_reachable = True
        """Said at the start of a round, so that not every job waits for the time-out."""

    def take(self, job: Job) -> bool:
        """Give a queued job its first attempt."""
        self._folders.write_spec(job.job_id, job.spec_json)
        self._move(job, JobState.STARTING, attempt=1)
        return True

    def step(self, job: Job) -> bool:
        """Do the next thing for a job that is not waiting in the queue; whether its state changed."""
        match job.state:
            case JobState.QUEUED:
                assert job.cancel_requested_at is not None
                return self._finish(job, JobState.CANCELLED, is_log_saved=True)
            case JobState.STARTING:
                return self._start(job)
            case JobState.RUNNING:
                return self._watch(job)
            case JobState.CANCELLING:
                return self._end(job)
            case JobState.SUCCEEDED | JobState.FAILED | JobState.CANCELLED:
                return self._save_last_log(job)

    def _start(self, job: Job) -> bool:
        if job.cancel_requested_at is not None:
            return self._begin_cancelling(job)
        if job.not_before_at is not None and self._now() < job.not_before_at:
            return False
        status = self._look(job)
        if status is None:
            return self._submit(job)
        if status.state is not AttemptState.RUNNING and not status.state.is_terminal:
            return False
        now = self._now()
        if status.state is AttemptState.RUNNING:
            self._move(job, JobState.RUNNING, started_at=job.started_at or now, heartbeat_seen_at=now)
            return True
        # It ended between two looks.
        job = self._copy_progress(self._store.update(job, started_at=job.started_at or now))
        return self._settle(job, status)

    def _submit(self, job: Job) -> bool:
        try:
            self._launcher.submit(attempt_launch(self._settings.job_uri(job.job_id), job.job_id, job.attempt))
        except LaunchRejectedError as error:
            message = f"Ray would not take the job: {error}"
            failure = JobFailure(code="rejected", message=message, attempt=job.attempt)
            return self._finish(job, JobState.FAILED, failure=failure, is_log_saved=True)
        log.info("attempt_submitted", ray_submission_id=job.ray_submission_id)
        return False  # RUNNING when Ray says so

    def _watch(self, job: Job) -> bool:
        status = self._look(job)
        job = self._copy_progress(job)
        if self._settle(job, status):
            return True
        if job.cancel_requested_at is not None:
            return self._begin_cancelling(job)
        if status is not None and status.state is AttemptState.RUNNING and self._is_silent(job):
            log.warning("attempt_silent", silent_seconds=self._silent_seconds(job))
            self._stop_attempt(job)  # the next round finds it stopped
        return False

    def _begin_cancelling(self, job: Job) -> bool:
        self._folders.request_cancel(job.job_id)
        self._move(job, JobState.CANCELLING)
        return True

    def _end(self, job: Job) -> bool:
        status = self._look(job)
        job = self._copy_progress(job)
        if self._settle(job, status):
            return True
        assert job.cancel_requested_at is not None
        if status is not _UNKNOWN and self._now() >= job.cancel_requested_at + self._grace:
            self._stop_attempt(job)
        return False

    def _save_last_log(self, job: Job) -> bool:
        assert job.finished_at is not None
        status = self._look(job)
        if status is _UNKNOWN:
            if self._now() < job.finished_at + LOG_PATIENCE:
                return False
        elif status is not None and not status.state.is_terminal:
            # The result is there and the process is on its way out; one that hangs must not keep its CPUs.
            if self._now() >= job.finished_at + self._grace:
                self._stop_attempt(job)
            return False
        elif status is not None:
            self._save_log(job)
        self._store.update(job, is_log_saved=True)
        return False

    # ── what became of an attempt ─────────────────────────────────────────────────────────────────────────────────

    def _settle(self, job: Job, status: AttemptStatus | None) -> bool:
        """Write down how the attempt ended; False if it has not.

        The result is read after Ray was asked: when Ray says the process is over, no result can come later.
        """
        is_over = status is None or status.state.is_terminal
        result = self._folders.read_result(job.job_id)
        # An earlier attempt, thought lost, may have got to its end after all; its failure is no news.
        is_late = result is not None and is_over and result.state == "SUCCEEDED"
        if result is not None and (result.attempt == job.attempt or is_late):
            return self._settle_result(job, status, result)
        if not is_over:
            return False
        if job.cancel_requested_at is not None:
            self._save_log(job)
            return self._finish(job, JobState.CANCELLED, is_log_saved=True)
        return self._next_attempt(job, self._lost(job, status))

    def _settle_result(self, job: Job, status: AttemptStatus | None, result: JobResult) -> bool:
        """The job's own word, which outranks Ray's."""
        if result.state != "FAILED":
            return self._finish(job, JobState(result.state), result=result, failure=None)
        failure = JobFailure(code="internal", message="The job failed without saying why.", attempt=result.attempt)
        if result.failure is not None:
            failure = JobFailure.from_document(result.failure, result.attempt)
        can_retry = result.failure is not None and result.failure.can_retry
        if can_retry and job.cancel_requested_at is not None:
            return self._finish(job, JobState.CANCELLED, result=result, failure=failure)
        if not can_retry or job.attempt >= self._settings.max_attempts:
            return self._finish(job, JobState.FAILED, result=result, failure=failure)
        if status is None or status.state.is_terminal:
            return self._next_attempt(job, failure)
        # Two attempts never run side by side: this one has to leave first.
        if status is not _UNKNOWN and self._silent_seconds(job) >= self._grace.total_seconds():
            self._stop_attempt(job)
        return False

    def _lost(self, job: Job, status: AttemptStatus | None) -> JobFailure:
        if status is None:
            why = "Ray no longer knows of it: its head was restarted."
        elif self._is_silent(job):
            why = f"It was stopped because its progress had not changed for {self._silent_seconds(job):.0f} seconds."
        else:
            why = f"Ray says {status.state}: {status.message[-2000:]}"
        return JobFailure(
            code="lost",
            message=f"Attempt {job.attempt} ended without a result. {why}",
            stage=job.progress.stage if job.progress else None,
            step=job.progress.step if job.progress else None,
            attempt=job.attempt,
        )

    def _next_attempt(self, job: Job, failure: JobFailure) -> bool:
        self._save_log(job)
        if job.attempt >= self._settings.max_attempts:
            return self._finish(job, JobState.FAILED, failure=failure, is_log_saved=True)
        delay = timedelta(seconds=self._settings.retry_delay_seconds * 2.0 ** (job.attempt - 1))
        changes = {"attempt": job.attempt + 1, "failure": failure, "not_before_at": self._now() + delay}
        self._move(job, JobState.STARTING, **changes)
        return True

    # ── looking, writing ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _grace(self) -> timedelta:
        return timedelta(seconds=self._settings.cancel_grace_seconds)

    def _look(self, job: Job) -> AttemptStatus | None:
        """Ray's word on the current attempt: None if it has never heard of it, `_UNKNOWN` if it says nothing."""
        if job.ray_submission_id is None:
            return None
        if not self.is_ray_reachable:
            return _UNKNOWN
        try:
            status = self._launcher.status(job.ray_submission_id)
        except LauncherUnavailableError as error:
            log.warning("ray_unavailable", error=str(error))
            return _UNKNOWN
        return _UNKNOWN if status is not None and status.state is AttemptState.UNKNOWN else status

    def _silent_seconds(self, job: Job) -> float:
        """Time without a sign of life."""
        return (self._now() - job.heartbeat_seen_at).total_seconds() if job.heartbeat_seen_at else 0.0

    def _is_silent(self, job: Job) -> bool:
        return self._silent_seconds(job) > self._settings.heartbeat_timeout_seconds

    def _copy_progress(self, job: Job) -> Job:
        progress = self._folders.read_progress(job.job_id)
        if progress is None or progress.attempt != job.attempt or progress == job.progress:
            return job
        return self._store.update(job, progress=progress, heartbeat_seen_at=self._now())

    def _save_log(self, job: Job) -> None:
        """Copy what the attempt printed off the head's disk, which goes with the head."""
        printed = self._launcher.read_log(job.ray_submission_id) if job.ray_submission_id else None
        if printed:
            self._folders.save_log(job.job_id, job.attempt, printed)

    def _stop_attempt(self, job: Job) -> None:
        assert job.ray_submission_id is not None
        log.info("attempt_stopped", ray_submission_id=job.ray_submission_id)
        self._launcher.stop(job.ray_submission_id)

    def _finish(self, job: Job, state: JobState, **changes: object) -> bool:
        if "result" not in changes:
            self._end_run(job, state)
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
        moved = self._store.update(job, state=state, **changes)
        log.info("job_moved", before=job.state, after=state, next_attempt=moved.attempt)
