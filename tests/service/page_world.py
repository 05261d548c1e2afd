"""The page's surroundings: a service on a port over a real database, and a reconciler that moves when told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from live_service import serve_desk
from service_doubles import FakeLauncher, MemoryFolders, MemoryPredictionFolders, MemoryRuns, make_job
from service_feeds import feeds
from service_shelf import MemoryRegistry, shelf_of

from pipelines.specs.documents import JobResult, Progress
from service.access.access import Access
from service.dispatch.reconciler import Reconciler
from service.http.desk import Desk
from service.interfaces import AttemptState
from service.joblogs.kept import KeptLogs
from service.joblogs.printed import JobLogs
from service.jobs.jobs import Jobs
from service.jobs.trials import Trials
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine, upgrade_database
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.predictions import Predictions
from service.records import ClusterStatus, Job
from service.settings import Settings


class PageWorld:
    """Ray and the folders of jobs are in memory; everything else is what a service has."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = make_engine(settings.database_url)
        upgrade_database(self.engine)
        self.store = SqlJobStore(self.engine)
        self.launcher = FakeLauncher()
        self.folders = MemoryFolders()
        self.registry = MemoryRegistry()
        self.access = Access(settings, SqlAccessStore(self.engine))
        self.reconciler = Reconciler(
            self.store,
            self.launcher,
            self.folders,
            MemoryRuns(),
            settings=settings,
            queue=SqlQueueStore(self.engine),
            now=lambda: datetime.now(UTC),
        )
        self.store.save_cluster_status(ClusterStatus(reconciled_at=datetime.now(UTC), is_ray_reachable=True))
        self.url = ""

    @contextmanager
    def served(self, port: int = 0) -> Iterator[None]:
        """On a port, a free one for 0, until the block ends."""
        desk = Desk(
            settings=self.settings,
            jobs=Jobs(self.store, self.settings, quotas=SqlQueueStore(self.engine)),
            logs=JobLogs(self.store, self.launcher, self.folders),
            kept_logs=KeptLogs(self.store, self.settings),
            predictions=Predictions(self.launcher, MemoryPredictionFolders(), self.settings),
            trials=Trials(self.folders),
            access=self.access,
            shelf=shelf_of(self.engine, self.store, self.folders, self.settings, self.registry),
            **feeds(self.engine, self.store, self.settings),
        )
        with serve_desk(self.settings, desk, port) as self.url:
            yield

    def add(self, **changes: Any) -> str:
        """A job in the database, past the desk."""
        job = make_job(**changes)
        self.store.insert(job)
        return job.job_id

    def rounds(self, number: int = 3) -> None:
        """Let the reconciler look."""
        for _ in range(number):
            self.reconciler.run_round()

    def running(self, **changes: Any) -> str:
        """A job whose first attempt runs."""
        job_id = self.add(**changes)
        self.rounds()
        return job_id

    def report(self, job_id: str, **fields: Any) -> None:
        """The job writes where it is, and the reconciler sees it."""
        fields = {"stage": "train", "attempt": self[job_id].attempt, "heartbeat_at": datetime.now(UTC)} | fields
        self.folders.progress[job_id] = Progress.model_validate(fields)
        self.rounds(1)

    def end(self, job_id: str, state: str, ray: AttemptState, **fields: Any) -> None:
        """The job writes its last word, and its process ends."""
        job = self[job_id]
        result = {"state": state, "attempt": job.attempt, **fields}
        self.folders.results[job_id] = JobResult.model_validate(result)
        self.launcher.set(str(job.ray_submission_id), ray)
        self.rounds()

    def close(self) -> None:
        self.store.close()

    def __getitem__(self, job_id: str) -> Job:
        job = self.store.get(job_id)
        assert job is not None
        return job
