"""What the reconciler does outside the database, each time after asking whether it still may.

Rows are fenced by the transactions themselves. A file, a request to Ray or to MLflow is not: whoever was frozen between
its decision and the act would, when it wakes, undo what its successor has done since. So the lease is asked for just
before each of them. What is left is a freeze within the act itself: for that, acts name the attempt they are
meant for, and a successor looks each round whether what it has asked of a job still stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.specs.documents import Announcement, Control, JobResult, Progress, StopAction
from pipelines.specs.jobs import JobSpec
from pipelines.specs.trial_documents import TrialList
from service.interfaces import AttemptStatus, Capacity, JobFolders, Launcher, RunningProgram, Runs
from service.launches import Launch
from service.states import JobState

Fence = Callable[[], None]
"""Raises `LeaseLostError` where another replica acts by now."""


class FencedLauncher:
    """`Launcher` of whoever acts under a lease."""

    def __init__(self, launcher: Launcher, fence: Fence) -> None:
        self._launcher = launcher
        self._fence = fence

    def submit(self, launch: Launch) -> None:
        """Start a program."""
        self._fence()
        self._launcher.submit(launch)

    def status(self, submission_id: str) -> AttemptStatus | None:
        """What Ray says of a program."""
        return self._launcher.status(submission_id)

    def list_running(self) -> Sequence[RunningProgram]:
        """Programs that wait or run."""
        return self._launcher.list_running()

    def stop(self, submission_id: str) -> None:
        """Ask Ray to end a program."""
        self._fence()
        self._launcher.stop(submission_id)

    def read_log(self, submission_id: str) -> str | None:
        """All the program has printed."""
        return self._launcher.read_log(submission_id)

    def capacity(self) -> Capacity | None:
        """What the cluster has."""
        return self._launcher.capacity()

    def close(self) -> None:
        """Let go of all connections."""
        self._launcher.close()


class FencedJobFolders:
    """`JobFolders` of whoever acts under a lease."""

    def __init__(self, folders: JobFolders, fence: Fence) -> None:
        self._folders = folders
        self._fence = fence

    def write_spec(self, job_id: str, spec_json: str) -> None:
        """Put the spec where the job reads it."""
        self._fence()
        self._folders.write_spec(job_id, spec_json)

    def request_stop(self, job_id: str, action: StopAction, attempt: int) -> None:
        """Ask one attempt of the job to stop."""
        self._fence()
        self._folders.request_stop(job_id, action, attempt)

    def withdraw_stop(self, job_id: str) -> None:
        """Ask nothing of the job any more."""
        self._fence()
        self._folders.withdraw_stop(job_id)

    def write_origin(self, job_id: str, retry_of: str) -> None:
        """Say whose work the job goes on with."""
        self._fence()
        self._folders.write_origin(job_id, retry_of)

    def withdraw_announcement(self, job_id: str) -> None:
        """Delete the word that a job has left."""
        self._fence()
        self._folders.withdraw_announcement(job_id)

    def read_spec(self, job_id: str) -> JobSpec:
        """The spec that lies in the folder."""
        return self._folders.read_spec(job_id)

    def list_announced(self) -> Sequence[str]:
        """Jobs that have left word of themselves."""
        return self._folders.list_announced()

    def read_announcement(self, job_id: str) -> Announcement | None:
        """What a job has left word of."""
        return self._folders.read_announcement(job_id)

    def save_log(self, job_id: str, attempt: int, log: str) -> None:
        """Keep what an attempt printed."""
        self._fence()
        self._folders.save_log(job_id, attempt, log)

    def read_control(self, job_id: str) -> Control | None:
        """What is asked of the job."""
        return self._folders.read_control(job_id)

    def read_progress(self, job_id: str) -> Progress | None:
        """Where the job is."""
        return self._folders.read_progress(job_id)

    def read_result(self, job_id: str) -> JobResult | None:
        """The job's last word."""
        return self._folders.read_result(job_id)

    def read_trials(self, job_id: str) -> TrialList | None:
        """What a search has tried so far."""
        return self._folders.read_trials(job_id)

    def read_log(self, job_id: str, attempt: int) -> str | None:
        """What an attempt printed."""
        return self._folders.read_log(job_id, attempt)


class FencedRuns:
    """`Runs` of whoever acts under a lease."""

    def __init__(self, runs: Runs, fence: Fence) -> None:
        self._runs = runs
        self._fence = fence

    def end(self, run_id: str, state: JobState) -> None:
        """Say that a run is over or, of a paused job, that it will go on."""
        self._fence()
        self._runs.end(run_id, state)

    def close(self) -> None:
        """Let go of all connections."""
        self._runs.close()
