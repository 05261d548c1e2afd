"""What the desk and the reconciler expect of those who keep jobs, run them and hold their folders; and what those may
say instead of an answer.

BackendError
├── StaleJobError          the row has moved on since it was read
├── DuplicateKeyError      the idempotency key is taken
├── LauncherError
│   ├── LauncherUnavailableError  no answer, or none that can be relied on: nothing is known
│   └── LaunchRejectedError       Ray will not take this job
├── FolderError            the storage does not answer
├── AnswerNotUnderstoodError  a prediction's answer is there, in words we do not know
└── RunsUnavailableError   MLflow does not answer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from pipelines.specs.documents import Announcement, Control, JobResult, Progress, StopAction
from pipelines.specs.jobs import JobSpec
from pipelines.specs.prediction import PredictJob, PredictOutcome
from pipelines.specs.trial_documents import TrialList
from service.access.audit import AuditEntry
from service.launches import Launch
from service.queueing.records import Holding, NodeRoom, QuotaException, Scope, Wait
from service.queueing.shares import Usage
from service.records import ClusterStatus, Job
from service.states import JobState


class BackendError(Exception):
    """Something behind the desk did not do what it was asked."""


class StaleJobError(BackendError):
    """The job has changed since it was read; read it again."""


class DuplicateKeyError(BackendError):
    """The idempotency key belongs to another job."""


class LauncherError(BackendError):
    """Ray did not do what it was asked."""


class LauncherUnavailableError(LauncherError):
    """Ray gave no answer that can be relied on: the wish may or may not have been carried out."""


class LaunchRejectedError(LauncherError):
    """Ray answered that it will not take this job."""


class FolderError(BackendError):
    """The folder of a job or of a prediction cannot be read or written now."""


class AnswerNotUnderstoodError(BackendError):
    """The answer of a prediction is there, and is no such document: to look again will not help."""


class RunsUnavailableError(BackendError):
    """The record of runs gave no answer, or none that can be relied on."""


@dataclass(frozen=True)
class IdempotencyKey:
    """A name the client gave its request, and what the request was."""

    key: str
    body_sha256: str


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs to read, newest first."""

    states: Sequence[JobState] = ()
    name: str | None = None
    kind: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """All of these."""
    is_archived: bool | None = False
    """None for both."""
    before: tuple[datetime, str] | None = None
    """Only jobs older than this (created_at, job_id)."""
    limit: int = 50
    projects: frozenset[str] | None = None
    """Only jobs of these projects; None for all."""
    owner: str | None = None


class JobStore(Protocol):
    """Keeps jobs. Every method is one transaction; a row of the audit log is part of it, is added only where the method
    changed something, and is told so after the commit.
    """

    def insert(self, job: Job, key: IdempotencyKey | None = None, audit: AuditEntry | None = None) -> None:
        """Add a job, and with it the key of the request that made it and its row of the audit log. Raises
        `DuplicateKeyError`; then nothing is.
        """

    def find_by_key(self, key: str) -> tuple[IdempotencyKey, Job] | None:
        """The job a key has made, with what the request was."""

    def get(self, job_id: str) -> Job | None:
        """One job."""

    def page(self, wanted: JobFilter) -> list[Job]:
        """Jobs, newest first."""

    def request_cancel(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should stop, once and only if it is not over; the job as it then is. The row of the audit log
        is added where it was noted.
        """

    def request_kill(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should end at once, and that it should stop; the job as it then is."""

    def request_pause(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should pause, once and only if it is neither over nor to be cancelled; the job as it then
        is.
        """

    def withdraw_pause(self, job_id: str, audit: AuditEntry | None = None) -> Job | None:
        """Note that a job should no longer pause, unless it is over; the job as it then is."""

    def edit(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        notes: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Job | None:
        """Change what people say of a job; None leaves a field as it is. The job as it then is."""

    def set_archived(self, job_id: str, is_archived: bool, audit: AuditEntry | None = None) -> Job | None:
        """Take a job that is over out of lists, or put it back; the job as it then is."""

    def list_unsettled(self) -> list[Job]:
        """Jobs the reconciler must look at, oldest first: handed to Ray, to be cancelled, paused or resumed, or ended
        without their log saved. Jobs that only wait are not among them.
        """

    def list_queued(self, limit: int) -> list[Job]:
        """Jobs that wait, the highest priority first, of equals the oldest."""

    def count_active(self) -> int:
        """Jobs that hold a place of `max_running_jobs`."""

    def update(self, job: Job, **changes: Any) -> Job:
        """Change fields of a job. Raises `StaleJobError` unless state and attempt are still those of `job`."""

    def cluster_status(self) -> ClusterStatus | None:
        """What the reconciler last saw."""

    def save_cluster_status(self, status: ClusterStatus) -> None:
        """Keep what the reconciler sees."""

    def close(self) -> None:
        """Let go of all connections."""


class QuotaStore(Protocol):
    """Keeps quotas that differ from the settings'. Every method is one transaction, its row of the audit log in it."""

    def list_quotas(self) -> Sequence[QuotaException]:
        """All exceptions, owners first, by name."""

    def find_quota(self, scope: Scope, name: str) -> QuotaException | None:
        """The exception of one owner or project."""

    def put_quota(self, exception: QuotaException, audit: AuditEntry) -> None:
        """Add or replace an exception."""

    def delete_quota(self, scope: Scope, name: str, audit: AuditEntry) -> bool:
        """Take an exception away; False where there is none, and then nothing is kept."""


class QueueStore(QuotaStore, Protocol):
    """Keeps what the queue is planned from, and what the plan said."""

    def list_queue(self, per_kind: int, limit: int) -> list[Job]:
        """Jobs that wait for a place, to plan for: of each kind the first by age, all owners by turns. Jobs of one
        owner, project, priority and demand are of one kind.
        """

    def list_waiting(self, per_owner: int, limit: int, projects: frozenset[str] | None) -> list[Job]:
        """Jobs that wait for a place, to be shown, of some projects or of all: of each owner the first in the queue."""

    def list_active(self) -> list[Job]:
        """Jobs that hold a place, oldest first."""

    def save_waits(self, waits: Sequence[Wait]) -> None:
        """Write down why jobs wait; of one that has left the queue meanwhile nothing is changed."""

    def usages(self) -> Mapping[str, Usage]:
        """What owners have used, each as of its own moment."""

    def save_usages(self, usages: Sequence[Usage]) -> None:
        """Replace what some owners have used."""

    def waiting_figures(self) -> Mapping[str, tuple[int, datetime]]:
        """By reason, how many jobs wait for it and since when the first of them does."""


class AttemptState(StrEnum):
    """Ray's word for a program."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    """No word at all: Ray is out of reach, or speaks in a way we do not know."""

    @property
    def is_terminal(self) -> bool:
        """The program's process is over."""
        return self in (AttemptState.STOPPED, AttemptState.SUCCEEDED, AttemptState.FAILED)


@dataclass(frozen=True)
class AttemptStatus:
    """What Ray says of a program."""

    state: AttemptState
    message: str = ""


@dataclass(frozen=True)
class RunningProgram:
    """A program that is not over."""

    submission_id: str
    metadata: Mapping[str, str]
    """As whoever started it gave it."""
    started_at: datetime | None = None


@dataclass(frozen=True)
class Capacity:
    """What the living nodes of the cluster have in all."""

    num_cpus: float
    num_gpus: float
    nodes: tuple[NodeRoom, ...] | None = None
    """Each of them, with what nothing holds; None where Ray does not say it now."""
    report_number: int | None = None
    """Grows with each report that `nodes` come from; None where reports cannot be told apart."""
    holdings: Mapping[str, tuple[Holding, ...]] = field(default_factory=dict)
    """By submission, on which nodes the placement groups of a program are, as far as Ray says it."""


class Launcher(Protocol):
    """Runs attempts of jobs, and predictions. Every method may raise `LauncherUnavailableError`."""

    def submit(self, launch: Launch) -> None:
        """Start a program; one that was started before is left alone. Raises `LaunchRejectedError`."""

    def status(self, submission_id: str) -> AttemptStatus | None:
        """What Ray says of a program; None if it has never heard of it."""

    def list_running(self) -> Sequence[RunningProgram]:
        """Programs that wait or run, whoever started them."""

    def stop(self, submission_id: str) -> None:
        """Ask Ray to end a program; one that is over or unknown is left alone."""

    def read_log(self, submission_id: str) -> str | None:
        """All the program has printed; None if Ray has never heard of it."""

    def capacity(self) -> Capacity | None:
        """What the cluster has; None if it cannot be told."""

    def close(self) -> None:
        """Let go of all connections."""


class JobFolders(Protocol):
    """The documents of `{storage_uri}/jobs/{job_id}/`. Every method may raise `FolderError`."""

    def write_spec(self, job_id: str, spec_json: str) -> None:
        """Put the spec where the job reads it."""

    def request_stop(self, job_id: str, action: StopAction, attempt: int) -> None:
        """Ask one attempt of the job to stop; a later one is not meant."""

    def withdraw_stop(self, job_id: str) -> None:
        """Ask nothing of the job any more."""

    def write_origin(self, job_id: str, retry_of: str) -> None:
        """Say whose work the job goes on with."""

    def read_control(self, job_id: str) -> Control | None:
        """What is asked of the job; None if nothing ever was, or not in words we know."""

    def read_progress(self, job_id: str) -> Progress | None:
        """Where the job is; None if it has not said, or not in words we know."""

    def read_result(self, job_id: str) -> JobResult | None:
        """The job's last word; None if there is none, or not in words we know."""

    def read_trials(self, job_id: str) -> TrialList | None:
        """What a search has tried so far; None if it has not said, or not in words we know."""

    def read_spec(self, job_id: str) -> JobSpec:
        """The spec that lies in the folder. Raises `FolderError` too where it is none that this version can read."""

    def list_announced(self) -> Sequence[str]:
        """Jobs that have left word of themselves, as they were not started from here."""

    def read_announcement(self, job_id: str) -> Announcement | None:
        """What a job has left word of; None if it has not, or not in words we know."""

    def withdraw_announcement(self, job_id: str) -> None:
        """Delete the word that a job has left; nothing happens where there is none."""

    def save_log(self, job_id: str, attempt: int, log: str) -> None:
        """Keep what an attempt printed."""

    def read_log(self, job_id: str, attempt: int) -> str | None:
        """What an attempt printed; None if it was not saved."""


class PredictionFolders(Protocol):
    """The documents of `{storage_uri}/predictions/{prediction_id}/`. Every method may raise `FolderError`."""

    def write_request(self, prediction_id: str, request: PredictJob) -> None:
        """Put the request where the program reads it."""

    def read_outcome(self, prediction_id: str) -> PredictOutcome | None:
        """What the program wrote; None if it has not. Raises `AnswerNotUnderstoodError`."""

    def delete(self, prediction_id: str) -> None:
        """Delete the folder; nothing happens where there is none."""

    def list_ids(self) -> list[str]:
        """Names of the folders that are there."""


class Runs(Protocol):
    """The record of a job's run, which the job keeps itself while it lives."""

    def end(self, run_id: str, state: JobState) -> None:
        """Say that the run of a job that can no longer do so is over, FAILED or CANCELLED, or that it is PAUSED. May be
        said again.

        Raises:
            RunsUnavailableError: no answer.
        """

    def close(self) -> None:
        """Let go of all connections."""
