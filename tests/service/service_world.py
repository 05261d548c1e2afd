"""A store, a Ray and folders in memory, and reconcilers that come and go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from queue_doubles import queue_of
from service_doubles import Clock, FakeLauncher, Killer, MemoryFolders, MemoryJobStore, MemoryRuns, make_job

from pipelines.specs.documents import JobResult
from service.dispatch.reconciler import Reconciler
from service.interfaces import AttemptState
from service.records import Job
from service.settings import Settings
from service.states import JobState


@dataclass
class World:
    """A store, a Ray and folders, and reconcilers that come and go."""

    settings: Settings
    store: MemoryJobStore = field(default_factory=MemoryJobStore)
    launcher: FakeLauncher = field(default_factory=FakeLauncher)
    folders: MemoryFolders = field(default_factory=MemoryFolders)
    runs: MemoryRuns = field(default_factory=MemoryRuns)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.reconciler = self.new_reconciler(Killer(-1))

    def new_reconciler(self, killer: Killer) -> Reconciler:
        watched: list[Any] = [killer.watch(part) for part in (self.store, self.launcher, self.folders, self.runs)]
        queue: Any = killer.watch(queue_of(self.store))
        return Reconciler(*watched, settings=self.settings, queue=queue, now=self.clock)

    def add(self, **changes: Any) -> str:
        job = make_job(**changes)
        self.store.insert(job)
        return job.job_id

    def rounds(self, number: int = 3, seconds: float = 0) -> None:
        for _ in range(number):
            self.clock.pass_seconds(seconds)
            self.reconciler.run_round()

    def running(self) -> str:
        """A job whose first attempt runs."""
        job_id = self.add()
        self.rounds()
        assert self[job_id].state is JobState.RUNNING
        return job_id

    def end(self, job_id: str, state: str, ray: AttemptState, attempt: int | None = None, **fields: Any) -> None:
        """The job writes its result, and its process ends."""
        job = self[job_id]
        self.folders.results[job_id] = JobResult.model_validate(
            {"state": state, "attempt": attempt or job.attempt, **fields}
        )
        self.launcher.set(str(job.ray_submission_id), ray)

    def restart(self) -> None:
        """Another reconciler takes over, with nothing in its memory."""
        self.reconciler = self.new_reconciler(Killer(-1))

    def kill_process(self, job_id: str) -> None:
        """`kill -9` on the driver."""
        self.launcher.set(str(self[job_id].ray_submission_id), AttemptState.FAILED)

    def cancel(self, job_id: str) -> None:
        self.store.request_cancel(job_id, self.clock())

    def kill(self, job_id: str) -> None:
        self.store.request_kill(job_id, self.clock())

    def pause(self, job_id: str) -> None:
        self.store.request_pause(job_id, self.clock())

    def resume(self, job_id: str) -> None:
        self.store.withdraw_pause(job_id)

    def __getitem__(self, job_id: str) -> Job:
        job = self.store.get(job_id)
        assert job is not None
        return job
