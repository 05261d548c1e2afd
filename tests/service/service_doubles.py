"""Twins of what stands behind the desk, in memory, and a way to kill the reconciler between any two of its calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.specs.documents import Announcement, Control, JobResult, Progress, StopAction
from pipelines.specs.jobs import JobSpec
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.prediction import ClassificationPrediction, PredictAnswer, PredictJob, PredictOutcome
from pipelines.specs.trial_documents import TrialList
from service.access.audit import AuditEntry
from service.interfaces import (
    AttemptState,
    AttemptStatus,
    Capacity,
    DuplicateKeyError,
    FolderError,
    IdempotencyKey,
    JobFilter,
    LauncherUnavailableError,
    LaunchRejectedError,
    RunningProgram,
    RunsUnavailableError,
    StaleJobError,
)
from service.jobs.jobs import _new_job
from service.launches import Launch
from service.queueing.records import NodeRoom, QuotaException
from service.queueing.shares import Usage
from service.records import ClusterStatus, Job
from service.states import ACTIVE_STATES, WAITING_STATES, JobState, can_move

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_job(**changes: Any) -> Job:
    """A queued job."""
    spec = resolve_spec({"kind": "pretrain", "preset": "tiny"})
    return replace(_new_job(spec), **changes)


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def pass_seconds(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class MemoryJobStore:
    """`JobStore` in a dictionary."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: dict[str, tuple[IdempotencyKey, str]] = {}
        self.audit: list[AuditEntry] = []
        self.status: ClusterStatus | None = None
        self.usages: dict[str, Usage] = {}
        self.quotas: dict[tuple[str, str], QuotaException] = {}
        self._lock = threading.RLock()

    def insert(self, job: Job, key: IdempotencyKey | None = None, audit: AuditEntry | None = None) -> None:
        with self._lock:
            if key is not None and key.key in self.keys:
                raise DuplicateKeyError(key.key)
            assert job.job_id not in self.jobs
            self.jobs[job.job_id] = job
            if key is not None:
                self.keys[key.key] = (key, job.job_id)
            self._keep(audit)

    def find_by_key(self, key: str) -> tuple[IdempotencyKey, Job] | None:
        found = self.keys.get(key)
        return None if found is None else (found[0], self.jobs[found[1]])

    def get(self, job_id: str) -> Job | None:
        return self.jobs.get(job_id)

    def page(self, wanted: JobFilter) -> list[Job]:
        found = [
            job
            for job in reversed(self._sorted())
            if (not wanted.states or job.state in wanted.states)
            and wanted.name in (None, job.name)
            and wanted.kind in (None, job.kind)
            and wanted.is_archived in (None, job.is_archived)
            and wanted.labels.items() <= job.labels.items()
            and (wanted.projects is None or job.project in wanted.projects)
            and wanted.owner in (None, job.owner)
            and (wanted.before is None or (job.created_at, job.job_id) < wanted.before)
        ]
        return found[: wanted.limit]

    def request_cancel(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        with self._lock:
            job = self.jobs.get(job_id)
            if job is not None and not job.state.is_terminal and job.cancel_requested_at is None:
                self.jobs[job_id] = replace(job, cancel_requested_at=at)
                self._keep(audit)
            return self.jobs.get(job_id)

    def request_kill(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        with self._lock:
            job = self.jobs.get(job_id)
            if job is not None and not job.state.is_terminal and job.kill_requested_at is None:
                asked = job.cancel_requested_at or at
                self.jobs[job_id] = replace(job, kill_requested_at=at, cancel_requested_at=asked)
                self._keep(audit)
            return self.jobs.get(job_id)

    def request_pause(self, job_id: str, at: datetime, audit: AuditEntry | None = None) -> Job | None:
        with self._lock:
            job = self.jobs.get(job_id)
            if job is not None and not (job.state.is_terminal or job.cancel_requested_at or job.pause_requested_at):
                self.jobs[job_id] = replace(job, pause_requested_at=at)
                self._keep(audit)
            return self.jobs.get(job_id)

    def withdraw_pause(self, job_id: str, audit: AuditEntry | None = None) -> Job | None:
        with self._lock:
            job = self.jobs.get(job_id)
            if job is not None and not job.state.is_terminal and job.pause_requested_at is not None:
                self.jobs[job_id] = replace(job, pause_requested_at=None)
                self._keep(audit)
            return self.jobs.get(job_id)

    def edit(self, job_id: str, *, audit: AuditEntry | None = None, **changes: Any) -> Job | None:
        with self._lock:
            given = {name: value for name, value in changes.items() if value is not None}
            if job_id in self.jobs and given:
                self.jobs[job_id] = replace(self.jobs[job_id], **given)
                self._keep(audit)
            return self.jobs.get(job_id)

    def set_archived(self, job_id: str, is_archived: bool, audit: AuditEntry | None = None) -> Job | None:
        with self._lock:
            job = self.jobs.get(job_id)
            if job is not None and job.state.is_terminal and job.is_archived != is_archived:
                self.jobs[job_id] = replace(job, is_archived=is_archived)
                self._keep(audit)
            return self.jobs.get(job_id)

    def list_unsettled(self) -> list[Job]:
        return [
            job
            for job in self._sorted()
            if job.state in ACTIVE_STATES
            or (job.state in WAITING_STATES and job.cancel_requested_at)
            or (job.state is JobState.QUEUED and job.pause_requested_at)
            or (job.state is JobState.PAUSED and not job.pause_requested_at)
            or (job.state.is_terminal and not job.is_log_saved)
        ]

    def list_queued(self, limit: int) -> list[Job]:
        waiting = [
            job
            for job in self._sorted()
            if job.state is JobState.QUEUED and not (job.cancel_requested_at or job.pause_requested_at)
        ]
        return sorted(waiting, key=lambda job: -job.priority)[:limit]

    def count_active(self) -> int:
        return sum(job.state in ACTIVE_STATES for job in self.jobs.values())

    def update(self, job: Job, **changes: Any) -> Job:
        with self._lock:
            now = self.jobs.get(job.job_id)
            after = changes.get("state", job.state)
            assert after == job.state or can_move(job.state, after), f"{job.state} never becomes {after}"
            if now is None or (now.state, now.attempt) != (job.state, job.attempt):
                raise StaleJobError(job.job_id)
            self.jobs[job.job_id] = replace(now, **changes)
            return replace(job, **changes)

    def cluster_status(self) -> ClusterStatus | None:
        return self.status

    def save_cluster_status(self, status: ClusterStatus) -> None:
        self.status = status

    def close(self) -> None:
        pass

    def _keep(self, audit: AuditEntry | None) -> None:
        if audit is not None:
            self.audit.append(audit)
            if audit.on_kept is not None:
                audit.on_kept()

    def _sorted(self) -> list[Job]:
        return sorted(self.jobs.values(), key=lambda job: (job.created_at, job.job_id))


class MemoryFolders:
    """`JobFolders` in dictionaries."""

    def __init__(self) -> None:
        self.specs: dict[str, str] = {}
        self.controls: dict[str, Control] = {}
        self.origins: dict[str, str] = {}
        self.progress: dict[str, Progress] = {}
        self.results: dict[str, JobResult] = {}
        self.trials: dict[str, TrialList] = {}
        self.announced: dict[str, Announcement] = {}
        self.logs: dict[tuple[str, int], str] = {}
        self.broken: set[str] = set()

    def write_spec(self, job_id: str, spec_json: str) -> None:
        self._check(job_id)
        self.specs[job_id] = spec_json

    def request_stop(self, job_id: str, action: StopAction, attempt: int) -> None:
        self._check(job_id)
        then = "pause" if action == "pause" else "end"
        self.controls[job_id] = Control(action="cancel", then=then, attempt=attempt)

    def withdraw_stop(self, job_id: str) -> None:
        self._check(job_id)
        self.controls[job_id] = Control()

    def write_origin(self, job_id: str, retry_of: str) -> None:
        self._check(job_id)
        self.origins[job_id] = retry_of

    def read_control(self, job_id: str) -> Control | None:
        self._check(job_id)
        return self.controls.get(job_id)

    def read_progress(self, job_id: str) -> Progress | None:
        self._check(job_id)
        return self.progress.get(job_id)

    def read_result(self, job_id: str) -> JobResult | None:
        self._check(job_id)
        return self.results.get(job_id)

    def read_trials(self, job_id: str) -> TrialList | None:
        self._check(job_id)
        return self.trials.get(job_id)

    def read_spec(self, job_id: str) -> JobSpec:
        self._check(job_id)
        if job_id not in self.specs:
            raise FolderError(f"{job_id} has no spec.json")
        return resolve_spec(json.loads(self.specs[job_id]))

    def list_announced(self) -> list[str]:
        return sorted(self.announced)

    def read_announcement(self, job_id: str) -> Announcement | None:
        self._check(job_id)
        return self.announced.get(job_id)

    def withdraw_announcement(self, job_id: str) -> None:
        self._check(job_id)
        self.announced.pop(job_id, None)

    def save_log(self, job_id: str, attempt: int, log: str) -> None:
        self._check(job_id)
        self.logs[job_id, attempt] = log

    def read_log(self, job_id: str, attempt: int) -> str | None:
        self._check(job_id)
        return self.logs.get((job_id, attempt))

    def _check(self, job_id: str) -> None:
        if job_id in self.broken:
            raise FolderError("the disk is full")


class MemoryRuns:
    """`Runs` in a dictionary."""

    def __init__(self) -> None:
        self.ended: dict[str, JobState] = {}
        self.is_away = False

    def end(self, run_id: str, state: JobState) -> None:
        if self.is_away:
            raise RunsUnavailableError("MLflow does not answer")
        self.ended[run_id] = state


def say_good(job: PredictJob) -> PredictOutcome:
    """Every text is good."""
    good = ClassificationPrediction(label="good", probabilities={"bad": 0.25, "good": 0.75})
    answer = PredictAnswer(
        name=job.model.name,
        version=str(job.model.version or 7),
        architecture="ElectraForSequenceClassification",
        predictions=(good,) * len(job.inputs),
    )
    return PredictOutcome(answer=answer)


class MemoryPredictionFolders:
    """`PredictionFolders` in dictionaries; what is asked is answered at once, unless the test says otherwise."""

    def __init__(self) -> None:
        self.requests: dict[str, PredictJob] = {}
        """What lies there now."""
        self.asked: dict[str, PredictJob] = {}
        """What was ever written, as the test remembers it."""
        self.answer: Callable[[PredictJob], PredictOutcome | None] = say_good
        self.deleted: list[str] = []
        self.is_broken = False

    def write_request(self, prediction_id: str, request: PredictJob) -> None:
        self._check()
        self.requests[prediction_id] = self.asked[prediction_id] = request

    def read_outcome(self, prediction_id: str) -> PredictOutcome | None:
        self._check()
        request = self.requests.get(prediction_id)
        return None if request is None else self.answer(request)

    def delete(self, prediction_id: str) -> None:
        self._check()
        self.requests.pop(prediction_id, None)
        self.deleted.append(prediction_id)

    def list_ids(self) -> list[str]:
        self._check()
        return list(self.requests)

    def _check(self) -> None:
        if self.is_broken:
            raise FolderError("the disk is full")


class FakeLauncher:
    """A Ray of one's own: programs run until the test says otherwise."""

    def __init__(self) -> None:
        self.attempts: dict[str, AttemptStatus] = {}
        self.logs: dict[str, str] = {}
        self.metadata: dict[str, Mapping[str, str]] = {}
        self.submitted: list[str] = []
        """Every program that really started, in order."""
        self.stopped: list[str] = []
        self.is_down = False
        self.rejects = False
        self.has_lost_logs = False
        """As of a head that was moved: it knows what ran before and not what that printed."""
        self.num_lost_answers = 0
        """Of so many submissions the client will not hear."""
        self.size: Capacity | None = Capacity(2, 0)
        self.held = (0.0, 0.0)
        """CPUs and GPUs that Ray says are held, on one node that is the cluster."""
        self.report_number: int | None = None

    def submit(self, launch: Launch) -> None:
        self._check()
        if self.rejects:
            raise LaunchRejectedError("no")
        name = launch.submission_id
        if name not in self.attempts:
            self.submitted.append(name)
            self.set(name, AttemptState.RUNNING)
            self.metadata[name] = launch.metadata
            self.logs[name] = f"log of {name}\n"
        if self.num_lost_answers:
            self.num_lost_answers -= 1
            raise LauncherUnavailableError("the answer was lost")

    def status(self, submission_id: str) -> AttemptStatus | None:
        self._check()
        return self.attempts.get(submission_id)

    def list_running(self) -> list[RunningProgram]:
        self._check()
        return [
            RunningProgram(name, self.metadata.get(name, {}))
            for name, told in self.attempts.items()
            if not told.state.is_terminal
        ]

    def stop(self, submission_id: str) -> None:
        self._check()
        self.stopped.append(submission_id)
        if submission_id in self.attempts and not self.attempts[submission_id].state.is_terminal:
            self.set(submission_id, AttemptState.STOPPED)

    def read_log(self, submission_id: str) -> str | None:
        self._check()
        if self.has_lost_logs:
            raise LauncherUnavailableError("Ray answered 500")
        return self.logs.get(submission_id)

    def capacity(self) -> Capacity | None:
        self._check()
        if self.size is None:
            return None
        cpus, gpus = self.size.num_cpus, self.size.num_gpus
        room = NodeRoom(cpus, gpus, cpus - self.held[0], gpus - self.held[1])
        return replace(self.size, nodes=(room,), report_number=self.report_number)

    def close(self) -> None:
        pass

    def set(self, name: str, state: AttemptState) -> None:
        self.attempts[name] = AttemptStatus(state)

    def restart_head(self) -> None:
        """The head comes back with nothing in its memory."""
        self.attempts.clear()
        self.logs.clear()

    def _check(self) -> None:
        if self.is_down:
            raise LauncherUnavailableError("Ray does not answer")


class Killed(BaseException):
    """`kill -9`: no `except Exception` sees it."""


class Killer:
    """Counts calls of what it watches and dies before or after the n-th."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0

    def watch(self, target: Any) -> Any:
        return _Watched(target, self)

    def point(self) -> None:
        if self.calls == self.at:
            self.at = -1
            raise Killed
        self.calls += 1


class _Watched:
    def __init__(self, target: Any, killer: Killer) -> None:
        self._target = target
        self._killer = killer

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._killer.point()
            answer = method(*args, **kwargs)
            self._killer.point()
            return answer

        return call
