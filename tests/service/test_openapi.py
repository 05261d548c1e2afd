"""What the interface says of itself, and whether it keeps to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as effort
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from service_doubles import FakeLauncher, MemoryFolders, MemoryPredictionFolders, make_job
from service_feeds import feeds
from service_shelf import MemoryRegistry, shelf_of

from service.access.access import Access
from service.app import create_app
from service.http.desk import Desk
from service.joblogs.kept import KeptLogs
from service.joblogs.printed import JobLogs
from service.jobs.jobs import Jobs
from service.jobs.trials import Trials
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine, upgrade_database
from service.ledger.store import SqlJobStore
from service.predictions import Predictions
from service.records import ClusterStatus
from service.settings import Settings
from service.states import JobState

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = int(os.environ.get("ELECTRA_API_EXAMPLES", "30"))
"""Requests tried per operation."""
KNOWN_JOB = "pt-1"
KNOWN_MODEL = "m"


@contextmanager
def wire(settings: Settings) -> Iterator[Desk]:
    """A desk with one finished job, so that logs end, and with models that answer."""
    engine = make_engine(settings.database_url)
    upgrade_database(engine)
    store = SqlJobStore(engine)
    if store.get(KNOWN_JOB) is None:
        job = make_job(job_id=KNOWN_JOB, state=JobState.SUCCEEDED, attempt=1, is_log_saved=True)
        store.insert(job.__class__(**{**job.__dict__, "finished_at": job.created_at}))
    store.save_cluster_status(ClusterStatus(reconciled_at=datetime.now(UTC), is_ray_reachable=True))
    launcher = FakeLauncher()
    predictions = Predictions(launcher, MemoryPredictionFolders(), settings)
    folders, registry = MemoryFolders(), MemoryRegistry()
    registry.add(KNOWN_MODEL)
    yield Desk(
        settings=settings,
        jobs=Jobs(store, settings),
        logs=JobLogs(store, launcher, folders),
        kept_logs=KeptLogs(store, settings),
        predictions=predictions,
        trials=Trials(folders),
        access=Access(settings, SqlAccessStore(engine)),
        shelf=shelf_of(engine, store, folders, settings, registry),
        **feeds(engine, store, settings),
    )
    store.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home: Path = tmp_path_factory.mktemp("openapi")
    return create_app(
        # Streams that end by themselves.
        Settings(home=home, source_timeout_seconds=2, allowed_hosts=("testserver",), event_stream_seconds=0.02),
        wire,
    )


@pytest.fixture(scope="module")
def api(app: Any) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", app)


OPERATIONS = [
    (path, method)
    for path, operations in create_app(Settings(), wire).openapi()["paths"].items()
    for method in operations
]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_answer_is_one_that_is_documented(
    api: Any, path: str, method: str, mode: schemathesis.GenerationMode
) -> None:
    """Whatever is sent, nothing breaks, and every answer is one of those the OpenAPI document names."""
    operation = api[path][method]
    number = 0

    @effort(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        nonlocal number
        number += 1
        if number % 2 and "job_id" in (case.path_parameters or {}):
            case.path_parameters["job_id"] = KNOWN_JOB
        if number % 2 and {"name", "version"} & (case.path_parameters or {}).keys() and "/models" in path:
            case.path_parameters |= {key: KNOWN_MODEL for key in case.path_parameters if key == "name"}
            case.path_parameters |= {key: "1" for key in case.path_parameters if key == "version"}
        case.call_and_validate(checks=CHECKS)

    try:
        send()
    except Unsatisfiable:
        pytest.skip("takes nothing that could be wrong")


def test_every_operation_says_how_it_refuses(app: Any) -> None:
    document = app.openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status in ("422", "500"):
                content = operation["responses"][status]["content"]
                assert list(content) == ["application/problem+json"], (path, method)
    assert {"Problem", "ProblemItem"} <= set(document["components"]["schemas"])
    assert "HTTPValidationError" not in document["components"]["schemas"]
