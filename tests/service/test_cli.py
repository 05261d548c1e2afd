from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from live_service import serve_app, serve_desk
from service_doubles import FakeLauncher
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from typer.testing import CliRunner, Result

from pipelines.specs.documents import ExampleToken, JobResult, ModelVersion, Progress
from service.cli import app, follow
from service.http.desk import Desk
from service.launches import attempt_launch
from service.ledger.store import SqlJobStore
from service.records import JobFailure
from service.settings import Settings
from service.states import JobState

HEAVY = ("torch", "ray", "mlflow", "transformers", "fastapi", "sqlalchemy", "pyarrow", "electra_core.accounting")


@pytest.fixture(autouse=True)
def nothing_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ELECTRA_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ELECTRA_HOME", str(tmp_path / "no-stack"))


@pytest.fixture
def url(settings: Settings, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serve_desk(settings, desk) as address:
        monkeypatch.setenv("ELECTRA_URL", address)
        yield address


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=text)


def submitted(*arguments: str) -> str:
    result = run("submit", "tiny", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return str(json.loads(result.stdout)["job_id"])


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    code = f"import sys, service.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert output.stdout.strip() == "[]"


@pytest.mark.usefixtures("url")
def test_a_preset_is_submitted_listed_and_shown() -> None:
    job_id = submitted("--set", "training.seed=7", "--name", "mine")
    assert job_id in run("jobs").stdout
    assert [job["name"] for job in json.loads(run("jobs", "--state", "queued", "--json").stdout)["items"]] == ["mine"]
    assert "No jobs" in run("jobs", "--state", "FAILED").stdout
    assert json.loads(run("show", job_id, "--json").stdout)["spec"]["training"]["seed"] == 7
    assert "seed: 7" in run("show", job_id).stdout


@pytest.mark.usefixtures("url")
def test_a_file_is_submitted_with_paths_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("some text\n" * 100)
    spec = tmp_path / "spec.yaml"
    spec.write_text("kind: pretrain\npreset: tiny\ncorpus: {sources: [{type: text, uris: 'te*.txt'}]}\n")
    monkeypatch.chdir(tmp_path)
    shown = json.loads(run("submit", "spec.yaml", "--json").stdout)
    found = json.loads(run("show", shown["job_id"], "--json").stdout)
    assert found["spec"]["corpus"]["sources"][0]["uris"] == [str(tmp_path / "te*.txt")]


@pytest.mark.usefixtures("url")
def test_a_job_is_asked_to_stop_unless_it_is_over(store: SqlJobStore) -> None:
    job_id = submitted()
    assert "is asked to stop" in run("cancel", job_id).stdout
    job = store.get(job_id)
    assert job is not None
    store.update(job, state=JobState.CANCELLED, finished_at=datetime.now(UTC))
    again = run("cancel", job_id)
    assert (again.exit_code, "job_finished" in again.stderr) == (4, True)


@pytest.mark.usefixtures("url")
def test_a_refused_spec_is_told_field_by_field() -> None:
    result = run("submit", "-", text="{kind: pretrain, preset: tiny, training: {seed: x, speed: 1}}")
    assert result.exit_code == 4
    assert "  training.seed: " in result.stderr
    assert "  training.speed: " in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("url")
def test_an_unknown_job_is_a_sentence() -> None:
    result = run("logs", "nope")
    assert (result.exit_code, result.stderr.startswith("No job has the id")) == (4, True)


def test_no_service_says_what_to_run() -> None:
    result = run("jobs")
    assert (result.exit_code, "electra up" in result.stderr) == (3, True)


def test_a_stale_address_says_what_to_run() -> None:
    result = run("jobs", "--url", "http://127.0.0.1:9")
    assert (result.exit_code, "127.0.0.1:9" in result.stderr) == (3, True)


def test_a_missing_file_names_the_presets() -> None:
    result = run("plan", "absent.yaml")
    assert (result.exit_code, "tiny" in result.stderr) == (2, True)


def test_a_wrong_spec_is_one_line_a_field() -> None:
    result = run("plan", "tiny", "--set", "training.seed=x", "--set", "model.num_attention_heads=3")
    assert result.exit_code == 2
    assert [line.strip().partition(":")[0] for line in result.stderr.splitlines()[1:]] == ["model", "training.seed"]


def test_a_plan_prints_the_whole_spec_and_its_price() -> None:
    result = run("plan", "tiny", "--set", "training.seed=7")
    assert result.exit_code == 0
    assert "seed: 7" in result.stdout
    assert "discriminator parameters" in result.stdout
    assert json.loads(run("plan", "tiny", "--json").stdout)["spec"]["preset"] == "tiny"


def test_a_plan_warns_of_a_weight_that_does_nothing() -> None:
    result = run("plan", "tiny", "--set", "model.sharing=none")
    assert "Warning: objective.discriminator_weight (50) does next to nothing" in " ".join(result.stdout.split())
    assert "Warning" not in run("plan", "tiny").stdout


class Life:
    """Moves the newest job on as a reconciler would, while a command follows it."""

    def __init__(self, store: SqlJobStore, **end: Any) -> None:
        self._store, self._end = store, end
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(timeout=30)

    def _live(self) -> None:
        deadline = time.monotonic() + 20
        while not (queued := self._store.list_queued(1)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        job = self._store.update(queued[0], state=JobState.STARTING, attempt=1)
        told = Progress(
            stage="train",
            step=50,
            num_train_steps=100,
            tokens_per_second=1234.0,
            eta_seconds=65.0,
            losses={"generator_loss": 5.5},
            evaluation={"discriminator_auc": 0.75},
            heartbeat_at=datetime.now(UTC),
        )
        job = self._store.update(job, state=JobState.RUNNING, progress=told)
        time.sleep(1)  # many looks of the follower
        self._store.update(job, finished_at=datetime.now(UTC), **self._end)


RESULT = JobResult(
    state="SUCCEEDED",
    evaluation={"discriminator_auc": 0.8},
    baselines={"discriminator_auc": 0.5},
    models=(
        ModelVersion(network="discriminator", name="m", version="1", alias="newest", export_uri="/out/discriminator"),
    ),
    example=(ExampleToken(token="cat", original="dog", replaced_probability=0.9),),
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.05)


@pytest.mark.usefixtures("url", "quick")
def test_following_a_job_that_succeeds_ends_with_its_figures(store: SqlJobStore) -> None:
    with Life(store, state=JobState.SUCCEEDED, result=RESULT):
        result = run("submit", "tiny", "--follow")
    assert result.exit_code == 0
    assert "train  step 50/100  1,234 tokens/s  1:05 left  generator_loss 5.5" in result.stdout
    assert "held out: discriminator_auc 0.75" in result.stdout
    assert "/out/discriminator" in result.stdout


@pytest.mark.usefixtures("url", "quick")
def test_following_a_job_that_fails_ends_with_its_reason(store: SqlJobStore) -> None:
    failure = JobFailure(code="data", message="Too many bad records.", stage="prepare", attempt=1, details=("a.txt:3",))
    with Life(store, state=JobState.FAILED, failure=failure):
        result = run("submit", "tiny", "--follow")
    assert result.exit_code == 1
    assert "Too many bad records." in result.stderr
    assert "a.txt:3" in result.stderr


@pytest.mark.usefixtures("url")
def test_interrupting_ends_the_following_and_not_the_job(monkeypatch: pytest.MonkeyPatch, store: SqlJobStore) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(follow, "follow_job", interrupted)
    result = run("submit", "tiny", "--follow")
    assert (result.exit_code, "the job goes on" in result.stderr) == (130, True)
    assert store.list_queued(1)[0].cancel_requested_at is None


@pytest.mark.usefixtures("url")
def test_logs_print_what_the_job_printed(store: SqlJobStore, launcher: FakeLauncher) -> None:
    job_id = submitted()
    job = store.get(job_id)
    assert job is not None
    store.update(job, state=JobState.STARTING, attempt=1)
    launcher.submit(attempt_launch("/jobs", job_id, 1))
    assert run("logs", job_id).stdout == f"log of {job_id}-a1\n"


def test_models_are_listed_with_version_alias_and_run() -> None:
    async def registered(request: Request) -> JSONResponse:
        return JSONResponse({"registered_models": [{"name": "m", "aliases": [{"alias": "newest", "version": "2"}]}]})

    async def versions(request: Request) -> JSONResponse:
        return JSONResponse({"model_versions": [{"name": "m", "version": n, "run_id": f"r{n}"} for n in ("1", "2")]})

    routes = [
        Route("/api/2.0/mlflow/registered-models/search", registered),
        Route("/api/2.0/mlflow/model-versions/search", versions),
    ]
    with serve_app(Starlette(routes=routes)) as mlflow:
        found = json.loads(run("models", "--mlflow-url", mlflow, "--json").stdout)
        assert "newest" in run("models", "--mlflow-url", mlflow).stdout
    assert [(one["version"], one["aliases"], one["mlflow_run_id"]) for one in found] == [
        ("2", ["newest"], "r2"),
        ("1", [], "r1"),
    ]


def test_models_without_a_server_say_what_to_run() -> None:
    assert run("models").exit_code == 3
    away = run("models", "--mlflow-url", "http://127.0.0.1:9")
    assert away.exit_code == 3
    assert "--mlflow-url or MLFLOW_TRACKING_URI" in away.output
    assert run("models", "--mlflow-url", "sqlite:///x").exit_code == 2
