"""What Ray says is free, in the words of its dashboard (2.60), and what is no word on it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from service.dispatch.launcher import RayLauncher
from service.dispatch.usage_reports import STALE_SECONDS, UsageReports, rooms_of_summary
from service.interfaces import Capacity
from service.queueing.records import NodeRoom
from service.settings import Settings

# As `LoadMetrics.summary` and the dashboard's `to_google_style` of Ray 2.60 make it, for these two nodes.
USAGE = {
    "10.0.0.1": {
        "CPU": [0.5, 4.0],
        "memory": [0.0, 100.0],
        "objectStoreMemory": [0.0, 5.0],
        "node:10.0.0.1": [0.0, 1.0],
    },
    "10.0.0.2": {"CPU": [0.0, 8.0], "GPU": [1.0, 2.0], "memory": [0.0, 100.0], "node:10.0.0.2": [0.0, 1.0]},
}
SUMMARY = {
    "10.0.0.1": "0.5/4.0 CPU\n0B/100B memory\n0B/5B object_store_memory",
    "10.0.0.2": "0.0/8.0 CPU\n1.0/2.0 GPU\n0B/100B memory\n0B/5B object_store_memory",
}
ROOMS = (NodeRoom(4.0, 0.0, 3.5, 0.0), NodeRoom(8.0, 2.0, 8.0, 1.0))


def report(stamp: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    metrics = {"usage": {"CPU": [0.5, 12.0], "GPU": [1.0, 2.0]}, "usageByNode": USAGE, **changes}
    return {"result": True, "data": {"clusterStatus": {"time": stamp, "loadMetricsReport": metrics}}}


def test_each_node_and_what_is_free_of_it() -> None:
    assert UsageReports().read(report()) == ROOMS


def test_without_nodes_the_cluster_is_one() -> None:
    assert UsageReports().read(report(usageByNode=None)) == (NodeRoom(12.0, 2.0, 11.5, 1.0),)


def test_a_report_that_stays_the_same_is_no_word_on_now() -> None:
    time = [0.0]
    reports = UsageReports(lambda: time[0])
    assert reports.read(report(1.0))
    time[0] = STALE_SECONDS
    assert reports.read(report(1.0))
    time[0] += 0.1
    assert reports.read(report(1.0)) is None
    assert reports.read(report(2.0))


@pytest.mark.parametrize(
    "answer", [{}, {"data": None}, {"data": {"clusterStatus": 3}}, report(usageByNode={"a": {"CPU": 1}})]
)
def test_what_is_not_understood_says_nothing(answer: dict[str, Any]) -> None:
    assert UsageReports().read(answer) is None
    assert rooms_of_summary(answer) is None


def test_the_other_autoscaler_says_it_in_lines() -> None:
    assert rooms_of_summary({"data": {"nodeLogicalResources": SUMMARY}}) == ROOMS


def test_what_a_placement_group_holds_is_held_though_nothing_runs_in_it() -> None:
    lines = "1.0/4.0 CPU (0.0 used of 2.0 reserved in placement groups)"
    assert rooms_of_summary({"data": {"nodeLogicalResources": {"n": lines}}}) == (NodeRoom(4.0, 0.0, 1.0, 0.0),)


def capacity(status: dict[str, Any], summary: dict[str, Any], num_nodes: int = 2) -> Capacity | None:
    """Of a Ray that answers so."""
    nodes = [{"state": "ALIVE", "resources_total": total} for total in ({"CPU": 4}, {"CPU": 8, "GPU": 2})][:num_nodes]
    listing = {"total": num_nodes, "num_after_truncation": num_nodes, "result": nodes}
    answers = {"/api/v0/nodes": {"data": {"result": listing}}, "/api/cluster_status": status, "/nodes": summary}

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=json.dumps(answers[request.url.path]))

    return RayLauncher(Settings(), httpx.MockTransport(handler)).capacity()


def test_the_launcher_asks_for_lines_only_where_there_is_no_report() -> None:
    lines = {"data": {"nodeLogicalResources": SUMMARY}}
    assert capacity(report(), {}) == Capacity(12, 2, ROOMS)
    assert capacity({"data": {"clusterStatus": None}}, lines) == Capacity(12, 2, ROOMS)
    assert capacity({"data": {}}, lines) == Capacity(12, 2, None)


def test_use_of_a_node_that_has_gone_is_not_believed() -> None:
    assert capacity(report(), {}, num_nodes=1) == Capacity(4, 0, None)
