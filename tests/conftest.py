"""Environment of every test: no telemetry, no usage statistics, one thread, nothing written to the home folder."""

from __future__ import annotations

import os

import pytest

os.environ.update(
    MLFLOW_DISABLE_TELEMETRY="true",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_TRAIN_ENABLE_PRINT_PATCH="0",
    RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.2",
    TOKENIZERS_PARALLELISM="false",
)

SHARED = {"stack": "stack", "ray_cluster": "ray"}
"""Fixtures of the whole session that are dear, and the group of tests that use each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share something in one of pytest-xdist's processes: a cluster, or what their module sets up."""
    for item in items:
        shared = [group for fixture, group in SHARED.items() if fixture in getattr(item, "fixturenames", ())]
        item.add_marker(pytest.mark.xdist_group(shared[0] if shared else item.nodeid.partition("::")[0]))
