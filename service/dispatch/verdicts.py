"""Why an attempt failed that left no word of its own, and whether a job has used up its time. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from service.interfaces import AttemptStatus
from service.records import Job, JobFailure
from service.settings import Settings

# Ray's own words. "OOM killer" is not among them: Ray names it as a possible cause of every process that was killed.
_LOGS = "last available logs"
"""Ray puts it before the end of what the program printed, which tells of processes that were replaced long ago, too."""
_MEMORY = re.compile(
    r"OutOfMemoryError|NODE_OUT_OF_MEMORY|memory pressure|running low on memory|^MemoryError", re.MULTILINE
)


@dataclass(frozen=True)
class Limits:
    """Of one job, with the service's own where the job has none. None is no limit."""

    starting_seconds: float | None
    running_seconds: float | None
    silence_seconds: float


def limits_of(job: Job, settings: Settings) -> Limits:
    """The job's limits, each or else the service's."""
    own = job.limits
    return Limits(
        own.starting_seconds or settings.starting_timeout_seconds,
        own.running_seconds or settings.running_timeout_seconds,
        own.silence_seconds or settings.heartbeat_timeout_seconds,
    )


def overrun(job: Job, limits: Limits) -> JobFailure | None:
    """The failure of a job that has taken longer than it may, or None."""
    if limits.starting_seconds is not None and job.starting_seconds > limits.starting_seconds:
        return JobFailure(
            code="starting_deadline",
            message=f"Attempt {job.attempt} must run within limits.starting_seconds = {limits.starting_seconds:g}, "
            f"and had not begun after {job.starting_seconds:.0f} s with Ray.",
            attempt=job.attempt,
        )
    if limits.running_seconds is not None and job.running_seconds > limits.running_seconds:
        return JobFailure(
            code="running_deadline",
            message=f"The job must end within limits.running_seconds = {limits.running_seconds:g}, and had run for "
            f"{job.running_seconds:.0f} s. To go on from its last checkpoint, retry it with larger limits.",
            stage=job.progress.stage if job.progress else None,
            step=job.progress.step if job.progress else None,
            attempt=job.attempt,
        )
    return None


def lost(job: Job, status: AttemptStatus | None, limits: Limits) -> JobFailure:
    """The failure of an attempt whose process ended without a result."""
    code = "lost"
    if status is None:
        why = "Ray no longer knows of it: its head was restarted."
    elif job.silent_seconds > limits.silence_seconds:
        why = f"It was stopped because its progress had not changed for {job.silent_seconds:.0f} seconds."
    else:
        why = f"Ray says {status.state}: {status.message[-2000:]}"
        # Exit status 137 alone is no proof: whoever kills a process leaves the same. Ray's memory monitor says so.
        if _MEMORY.search(status.message.partition(_LOGS)[0]):
            code = "out_of_memory"
    return JobFailure(
        code=code,
        message=f"Attempt {job.attempt} ended without a result. {why}",
        stage=job.progress.stage if job.progress else None,
        step=job.progress.step if job.progress else None,
        attempt=job.attempt,
    )
