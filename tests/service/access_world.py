"""A service that asks for keys: two projects, and a key for each kind of principal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from service_doubles import FakeLauncher, MemoryFolders, MemoryPredictionFolders, make_job
from service_feeds import feeds
from service_shelf import MemoryRegistry, shelf_of

from pipelines.specs.trial_documents import TrialList
from service.access.access import Access
from service.access.audit import Caller
from service.access.principals import ALL_PROJECTS, ALL_SCOPES, Permission, Principal, Role
from service.app import create_app
from service.http.desk import Desk
from service.joblogs.kept import KeptLogs
from service.joblogs.printed import JobLogs
from service.jobs.jobs import Jobs
from service.jobs.trials import Trials
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine, upgrade_database
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.ledger.webhook_store import SqlWebhookStore
from service.predictions import Predictions
from service.records import ClusterStatus, Job
from service.settings import Settings
from service.webhooks.records import Attempt, DeliveryState

ROOT = Caller(Principal(owner="root", roles={ALL_PROJECTS: Role.ADMIN}, method="open"))
TINY = {"spec": {"kind": "pretrain", "preset": "tiny"}}


@dataclass
class AccessWorld:
    """Project `clinical` of Ada and Ben, project `law` of Eve."""

    settings: Settings
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    clock: float = 0.0

    def __post_init__(self) -> None:
        self.engine = make_engine(self.settings.database_url)
        upgrade_database(self.engine)
        self.store = SqlJobStore(self.engine)
        self.folders = MemoryFolders()
        self.registry = MemoryRegistry()
        launcher = FakeLauncher()
        self.access = Access(self.settings, SqlAccessStore(self.engine), lambda: self.now, lambda: self.clock)
        self.desk = Desk(
            settings=self.settings,
            jobs=Jobs(self.store, self.settings, quotas=SqlQueueStore(self.engine)),
            logs=JobLogs(self.store, launcher, self.folders),
            kept_logs=KeptLogs(self.store, self.settings),
            predictions=Predictions(launcher, MemoryPredictionFolders(), self.settings),
            trials=Trials(self.folders),
            access=self.access,
            shelf=shelf_of(self.engine, self.store, self.folders, self.settings, self.registry),
            **feeds(self.engine, self.store, self.settings),
        )
        for project in ("clinical", "law"):
            self.access.create_project(ROOT, project)
        self.keys = {
            "ada": self.key("ada", "clinical", Role.MEMBER),
            "ben": self.key("ben", "clinical", Role.MEMBER),
            "viewer": self.key("vera", "clinical", Role.VIEWER),
            "admin": self.key("abel", "clinical", Role.ADMIN),
            "eve": self.key("eve", "law", Role.ADMIN),
            "root": self.key("root", None, Role.ADMIN),
        }
        self.store.save_cluster_status(ClusterStatus(reconciled_at=datetime.now(UTC), is_ray_reachable=True))

    def key(
        self,
        owner: str,
        project: str | None,
        role: Role,
        scopes: frozenset[Permission] = ALL_SCOPES,
        lifetime_days: int | None = None,
    ) -> str:
        caller = Caller(ROOT.principal)
        _, text = self.access.create_key(
            caller, name="t", owner=owner, project=project, role=role, scopes=scopes, lifetime_days=lifetime_days
        )
        return text

    def job(self, owner: str = "ada", project: str = "clinical", **changes: Any) -> Job:
        job = make_job(owner=owner, project=project, **changes)
        self.store.insert(job)
        self.folders.trials[job.job_id] = TrialList(metric="auc", mode="max", trials=())
        return job

    def failed_delivery(self) -> dict[str, str]:
        """Ids of a webhook of `clinical` and of a delivery that was given up."""
        caller = Caller(ROOT.principal)
        url = "https://hooks.test/x"
        made, _ = self.desk.webhooks.create(caller, url=url, events=["state"], labels={}, project="clinical")
        sent = self.desk.webhooks.ping(caller, made.webhook_id)
        failed = Attempt(at=datetime.now(UTC), status=500, error="status")
        SqlWebhookStore(self.engine).note_attempt(sent, failed, DeliveryState.DEAD, failed.at)
        return {"webhook_id": made.webhook_id, "delivery_id": sent.delivery_id}

    @asynccontextmanager
    async def client(self, address: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
        @contextmanager
        def wire(_: Settings) -> Any:
            yield self.desk

        app = create_app(self.settings, wire)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 1234))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            yield client

    def bearer(self, who: str | None) -> dict[str, str]:
        return {} if who is None else {"Authorization": f"Bearer {self.keys[who]}"}

    def close(self) -> None:
        self.store.close()


def keys_settings(home: Path, **changes: Any) -> Settings:
    return Settings.model_validate(
        {"home": home, "access": "keys", "source_timeout_seconds": 5, "rate_limit_per_minute": 100_000, **changes}
    )
