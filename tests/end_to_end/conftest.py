"""One embedded stack for all end-to-end tests: a real Ray cluster, MLflow server and service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from main_job import MainJob, run_main_job

from service.client import ElectraClient
from service.local import LocalStack, StackOptions

HERE = Path(__file__).parent
TEST_TIMEOUT_SECONDS = 1800
"""A test is several jobs, each of ten processes that start, on two cores that other tests share."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    options = StackOptions(num_cpus=2, environment={"ELECTRA_RECONCILE_INTERVAL_SECONDS": "0.5"})
    with LocalStack(tmp_path_factory.mktemp("stack") / "home", options) as stack:
        yield stack


@pytest.fixture
def client(stack: LocalStack) -> Iterator[ElectraClient]:
    with ElectraClient(stack.service_url) as client:
        yield client


@pytest.fixture(scope="session")
def main_job(stack: LocalStack) -> MainJob:
    """The undisturbed job that the others are held against."""
    with ElectraClient(stack.service_url) as client:
        return run_main_job(client)
