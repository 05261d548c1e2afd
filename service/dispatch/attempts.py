"""What the reconciler does with one job: one `match` on the persisted state.

Each case makes at most one side effect and then writes the state, and every side effect may be made again. The
process can die between any two lines here: the next one starts over from the row.

A person's wishes are columns of the row. To kill outranks to cancel, and that outranks to pause.
"""

from __future__ import annotations

from datetime import timedelta

import structlog

from service.dispatch.clocks import SAVE_SECONDS
from service.dispatch.endings import FRESH, NOT_WAITING, UNKNOWN, Endings
from service.dispatch.verdicts import overrun
from service.interfaces import AttemptState, AttemptStatus, LaunchRejectedError
from service.launches import attempt_launch
from service.records import Job, JobFailure
from service.states import JobState

log = structlog.get_logger(__name__)

LOG_PATIENCE = timedelta(hours=1)
"""How long a finished job's log is waited for while Ray is out of reach."""


class JobSteps(Endings):
    """Moves one job along by one step."""

    def take(self, job: Job) -> bool:
        """Give a queued job its next attempt: the first, or the one after a pause."""
        self._folders.write_spec(job.job_id, job.spec_json)
        if job.retry_of is not None:
            self._folders.write_origin(job.job_id, job.retry_of)
        if job.attempt:
            self._folders.withdraw_stop(job.job_id)
        self._move(job, JobState.STARTING, attempt=job.attempt + 1, not_before_at=None, **NOT_WAITING, **FRESH)
        return True

    def preempt(self, job: Job, for_job_id: str, is_same_project: bool) -> bool:
        """Have a running job save a checkpoint and leave its place to another. Nobody has wished that it stay away, so
        it is queued again as soon as it has left. A job of another project is no business of its readers: of that one
        only the log has the name.
        """
        if job.state is not JobState.RUNNING:
            return False
        log.info("job_preempted", for_job_id=for_job_id)
        self._folders.request_stop(job.job_id, "pause", job.attempt)
        now = self._now()
        self._move(
            job,
            JobState.PAUSING,
            stop_asked_at=now,
            preempted_at=now,
            preempted_for=for_job_id if is_same_project else None,
            num_preemptions=job.num_preemptions + 1,
        )
        return True

    def step(self, job: Job) -> bool:
        """Do the next thing for a job that does not merely wait; whether its state changed."""
        match job.state:
            case JobState.QUEUED | JobState.PAUSED:
                return self._wait(job)
            case JobState.STARTING:
                return self._start(job)
            case JobState.RUNNING:
                return self._watch(job)
            case JobState.PAUSING | JobState.CANCELLING:
                return self._end(job)
            case JobState.SUCCEEDED | JobState.FAILED | JobState.CANCELLED:
                return self._save_last_log(job)

    def _wait(self, job: Job) -> bool:
        """Nothing of it is on Ray, so a wish is carried out by writing it down."""
        if job.cancel_requested_at is not None:
            return self._finish(job, JobState.CANCELLED, is_log_saved=True)
        if job.state is JobState.PAUSED:
            self._move(job, JobState.QUEUED, queued_at=self._now(), **NOT_WAITING)
        else:
            self._move(job, JobState.PAUSED, **NOT_WAITING)
        return True

    def _start(self, job: Job) -> bool:
        if _is_to_stop(job):
            return self._begin_stopping(job)
        if job.not_before_at is not None and self._now() < job.not_before_at:
            return False
        status = self._look(job)
        if status is UNKNOWN:
            self._clock.miss(job)
            return False
        if status is not None and status.state is AttemptState.PENDING:
            return self._wait_for_ray(job, status)
        if status is None and not job.is_adopted:  # what somebody else has started is not started again
            return self._wait_for_ray(job, status)
        now = self._now()
        if status is not None and status.state is AttemptState.RUNNING:
            self._clock.forget(job)
            self._move(
                job,
                JobState.RUNNING,
                started_at=job.started_at or now,
                run_started_at=now,
                heartbeat_seen_at=now,
                starting_seconds=0.0,  # a limit that is lowered later is no judgement on it
                silent_seconds=0.0,
            )
            return True
        # It ended between two looks.
        job = self._copy_progress(self._store.update(job, started_at=job.started_at or now))
        return self._settle(job, status)

    def _wait_for_ray(self, job: Job, status: AttemptStatus | None) -> bool:
        """Hand it to Ray, or see whether Ray takes too long to start it."""
        waited = job.starting_seconds + self._clock.look(job)
        limit = self._limits(job).starting_seconds
        if limit is None or waited <= limit:
            if waited - job.starting_seconds >= SAVE_SECONDS:
                job = self._store.update(job, starting_seconds=waited)
                self._clock.saved(job)
            return self._submit(job) if status is None else False
        # Written before it is stopped: whoever finds it stopped must know why.
        job = self._store.update(job, starting_seconds=waited)
        self._clock.saved(job)
        if status is None:
            # Ray may have taken it without saying so: should it begin after all, it finds this and leaves.
            self._folders.request_stop(job.job_id, "cancel", job.attempt)
            return self._finish(job, JobState.FAILED, failure=overrun(job, self._limits(job)))
        log.warning("attempt_not_started", starting_seconds=waited)
        self._stop_attempt(job)
        return False

    def _submit(self, job: Job) -> bool:
        try:
            uri = self._settings.job_uri(job.job_id)
            self._launcher.submit(attempt_launch(uri, job.job_id, job.attempt, project=job.project, owner=job.owner))
        except LaunchRejectedError as error:
            message = f"Ray would not take the job: {error}"
            failure = JobFailure(code="rejected", message=message, attempt=job.attempt)
            return self._finish(job, JobState.FAILED, failure=failure, is_log_saved=True)
        log.info("attempt_submitted", ray_submission_id=job.ray_submission_id)
        return False  # RUNNING when Ray says so

    def _watch(self, job: Job) -> bool:
        status = self._look(job)
        is_running = status is not None and status.state is AttemptState.RUNNING
        job = self._copy_progress(job, is_running)
        if self._settle(job, status):
            return True
        if _is_to_stop(job):
            return self._begin_stopping(job)
        if not is_running:
            return False
        limits = self._limits(job)
        if overrun(job, limits) is not None:
            self._stop_overrun(job)
        elif job.silent_seconds > limits.silence_seconds:
            log.warning("attempt_silent", silent_seconds=job.silent_seconds)
            job = self._store.update(job, silent_seconds=job.silent_seconds, running_seconds=job.running_seconds)
            self._clock.saved(job)
            self._stop_attempt(job)  # the next round finds it stopped
        return False

    def _stop_overrun(self, job: Job) -> None:
        """Let it save a checkpoint, which a retry can go on from; then end it."""
        if job.stop_asked_at is None:
            log.warning("job_overran", running_seconds=job.running_seconds)
            self._folders.request_stop(job.job_id, "cancel", job.attempt)
            self._store.update(job, stop_asked_at=self._now(), running_seconds=job.running_seconds)
            self._clock.saved(job)
        elif self._now() >= job.stop_asked_at + self._grace:
            self._stop_attempt(job)

    def _begin_stopping(self, job: Job) -> bool:
        """Ask it in writing, and wait for its last word from now on."""
        if job.cancel_requested_at is not None:
            self._folders.request_stop(job.job_id, "cancel", job.attempt)
            self._move(job, JobState.CANCELLING, stop_asked_at=self._now())
        else:
            self._folders.request_stop(job.job_id, "pause", job.attempt)
            self._move(job, JobState.PAUSING, stop_asked_at=self._now())
        return True

    def _end(self, job: Job) -> bool:
        status = self._look(job)
        job = self._copy_progress(job)
        if self._settle(job, status):
            return True
        if job.state is JobState.PAUSING and job.cancel_requested_at is not None:
            return self._begin_stopping(job)
        self._insist(job)
        # A row that the version before has moved here says when it was wished, and not when the job was told.
        asked_at = job.stop_asked_at or job.cancel_requested_at or job.pause_requested_at or self._now()
        if status is not UNKNOWN and self._now() >= asked_at + self._patience(job):
            self._stop_attempt(job)
        return False

    def _insist(self, job: Job) -> None:
        """A replica that was frozen in the middle of a write, and woke, may have put something else there since."""
        then = "end" if job.state is JobState.CANCELLING else "pause"
        asked = self._folders.read_control(job.job_id)
        if asked is None or asked.action != "cancel" or asked.then != then or asked.attempt not in (None, job.attempt):
            log.warning("stop_asked_again", then=then)
            self._folders.request_stop(job.job_id, "pause" if then == "pause" else "cancel", job.attempt)

    def _patience(self, job: Job) -> timedelta:
        if job.kill_requested_at is not None:
            return timedelta(0)
        if job.state is JobState.PAUSING:
            return timedelta(seconds=self._settings.pause_grace_seconds)
        return self._grace

    def _save_last_log(self, job: Job) -> bool:
        assert job.finished_at is not None
        status = self._look(job)
        if status is UNKNOWN:
            if self._now() < job.finished_at + LOG_PATIENCE:
                self.lingering[job.job_id] = job  # as far as anybody knows
                return False
        elif status is not None and not status.state.is_terminal:
            # The result is there and the process is on its way out; one that hangs must not keep its CPUs.
            self.lingering[job.job_id] = job
            if self._now() >= job.finished_at + self._grace:
                self._stop_attempt(job)
            return False
        self.lingering.pop(job.job_id, None)
        is_known = status is not None and status is not UNKNOWN
        if is_known and not self._save_log(job) and self._now() < job.finished_at + LOG_PATIENCE:
            return False
        self._store.update(job, is_log_saved=True)
        return False


def _is_to_stop(job: Job) -> bool:
    return job.cancel_requested_at is not None or job.pause_requested_at is not None
