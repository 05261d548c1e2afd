"""What the requests of `schema_requests.py` meet: callers, jobs in every state, a model, webhooks, a saved log."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import requests
from service_process import server

from pipelines.specs.documents import JobResult, Progress
from pipelines.specs.parsing import dump_spec, resolve_spec
from pipelines.specs.trial_documents import TrialList
from service.access.access import Access
from service.access.audit import Caller
from service.access.principals import ALL_PROJECTS, ALL_SCOPES, Principal, Role
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine
from service.ledger.store import SqlJobStore
from service.records import Job
from service.settings import Settings
from service.states import JobState

WITHOUT_RAY = ("logs_unavailable", "prediction_unavailable")
"""Codes of what is answered while Ray is away."""
MODEL = "encoder"
SPEC = {"kind": "pretrain", "preset": "tiny"}
_ROOT = Principal(owner="bench", roles={ALL_PROJECTS: Role.ADMIN}, method="open")


@dataclass
class World:
    """A service that runs, and the ids of what is there."""

    url: str
    callers: dict[str, str | None]
    """Name to key; none for nobody."""
    job_ids: list[str]
    finished_id: str
    webhook_id: str
    delivery_id: str
    session: requests.Session = field(default_factory=requests.Session)

    def headers(self, who: str) -> dict[str, str]:
        """What a caller shows."""
        key = self.callers[who]
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def known_ids(self, path: str, number: int) -> dict[str, Any]:
        """Parameters of a path that name what is there; of what follows a job, of one that is over."""
        # Without Ray the end of a job that is not over never comes, and followers of its log wait for it.
        follows = path.endswith(("/logs", "/events"))
        found: dict[str, Any] = {
            "job_id": self.finished_id if follows else self.job_ids[number // 2 % len(self.job_ids)],
            "webhook_id": self.webhook_id,
            "delivery_id": self.delivery_id,
        }
        if "/models/" in path:
            found |= {"name": MODEL, "version": "1", "alias": "newest"}
        if path.startswith("/v1/quotas/"):
            found |= {"scope": "owner", "name": "ada"}
        if path.endswith("/revoke"):
            made = self._make("/v1/keys", {"name": "t", "owner": "t", "project": "default", "lifetime_days": 1})
            found["key_id"] = made["key_id"]
        return found

    def spare_webhook(self) -> str:
        """A webhook to delete."""
        return str(self._make("/v1/webhooks", {"url": "http://127.0.0.1:9/x", "project": "default"})["webhook_id"])

    def _make(self, path: str, body: Any) -> Any:
        answer = self.session.post(self.url + path, json=body, headers=self.headers("root"), timeout=30)
        assert answer.ok, answer.text
        return answer.json()


def populate(url: str, database_url: str, mlflow_url: str, home: Path) -> World:
    """Fill the database of a service that has just started, and its storage."""
    engine = make_engine(database_url)
    settings = Settings(home=home, database_url=database_url)
    access = Access(settings, SqlAccessStore(engine))
    access.create_project(Caller(_ROOT), "law")

    def key(owner: str, project: str | None, role: Role) -> str:
        asked: dict[str, Any] = {"owner": owner, "project": project, "role": role, "scopes": ALL_SCOPES}
        return access.create_key(Caller(_ROOT), name="bench", lifetime_days=None, **asked)[1]

    callers: dict[str, str | None] = {
        "root": key("root", None, Role.ADMIN),
        "member": key("ada", "default", Role.MEMBER),
        "admin": key("abel", "default", Role.ADMIN),
        "viewer": key("vera", "default", Role.VIEWER),
        "nobody": None,
        "made-up key": "Bearer-of-nothing",
    }
    store = SqlJobStore(engine)
    jobs = [_job(number, state, project) for project in ("default", "law") for number, state in enumerate(JobState)]
    for job in jobs:
        store.insert(job)
    finished = next(job for job in jobs if job.state is JobState.SUCCEEDED)
    folder = home / "storage" / "jobs" / finished.job_id
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "attempt-1.log").write_text("a line\n" * 50)
    (folder / "trials.json").write_text(TrialList(metric="auc", mode="max").model_dump_json())
    (folder / "exports" / "discriminator").mkdir(parents=True)
    (folder / "exports" / "discriminator" / "config.json").write_text("{}")
    engine.dispose()
    _register(mlflow_url, finished.job_id)
    world = World(url, callers, [job.job_id for job in jobs], finished.job_id, "", "")
    world.webhook_id = world.spare_webhook()
    ping = world._make(f"/v1/webhooks/{world.webhook_id}/test", None)
    world.delivery_id = ping["delivery_id"]
    return world


@contextmanager
def start_mlflow(home: Path) -> Iterator[str]:
    """A tracking server with its registry; its URL."""
    home.mkdir()
    start = (
        "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'mlflow', 'server', '--host', '127.0.0.1',"
        f" '--workers', '1', '--backend-store-uri', 'sqlite:///{home / 'mlflow.db'}', '--artifacts-destination',"
        f" {str(home / 'artifacts')!r}, '--port', os.environ['PORT']])"
    )
    environment = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with server("mlflow", [sys.executable, "-c", start], environment, home, "PORT", "/health") as (url, _):
        yield url


def _job(number: int, state: JobState, project: str) -> Job:
    spec = dump_spec(resolve_spec(SPEC))
    now = datetime.now(UTC)
    began = now - timedelta(hours=1)
    has_begun = state is not JobState.QUEUED
    return Job(
        job_id=f"pt-{project}-{number:03}",
        name="bench",
        kind="pretrain",
        spec_json=spec,
        spec_sha256=hashlib.sha256(spec.encode()).hexdigest(),
        created_at=began,
        state=state,
        attempt=int(has_begun),
        started_at=began if has_begun else None,
        finished_at=now if state.is_terminal else None,
        is_log_saved=state.is_terminal,
        progress=Progress(stage="train", fraction=0.5, step=5, heartbeat_at=now) if has_begun else None,
        result=_result(f"pt-{project}-{number:03}") if state is JobState.SUCCEEDED else None,
        labels={"team": "nlp", "project": project},
        project=project,
        owner="ada",
    )


def _result(job_id: str) -> JobResult:
    model = {
        "network": "discriminator",
        "name": MODEL,
        "version": "1",
        "alias": "newest",
        "export_uri": f"jobs/{job_id}/exports/discriminator",
    }
    return JobResult.model_validate({"state": "SUCCEEDED", "evaluation": {"auc": 0.9}, "models": [model]})


def _register(mlflow_url: str, job_id: str) -> None:
    """A model with a version of a job, and an alias."""
    with httpx.Client(base_url=f"{mlflow_url}/api/2.0/mlflow/", timeout=30, trust_env=False) as client:

        def ask(path: str, body: Any) -> Any:
            answer = client.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        run = ask("runs/create", {"experiment_id": "0", "start_time": 0})["run"]["info"]
        ask("registered-models/create", {"name": MODEL})
        tags = [{"key": "electra.job_id", "value": job_id}]
        source = {"source": f"{run['artifact_uri']}/model", "run_id": run["run_id"], "tags": tags}
        ask("model-versions/create", {"name": MODEL, **source})
        ask("registered-models/alias", {"name": MODEL, "alias": "newest", "version": "1"})
