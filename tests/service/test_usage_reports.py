"""What Ray says is free, in the words of its dashboard (2.60), and what is no word on it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from service.dispatch.holdings import holdings_of
from service.dispatch.launcher import RayLauncher
from service.dispatch.usage_reports import STALE_SECONDS, UsageReports, rooms_of_summary
from service.interfaces import Capacity
from service.queueing.records import Holding, NodeRoom
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
ROOMS = (NodeRoom(4.0, 0.0, 3.5, 0.0, "10.0.0.1"), NodeRoom(8.0, 2.0, 8.0, 1.0, "10.0.0.2"))


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
    assert rooms_of_summary({"data": {"nodeLogicalResources": {"n": lines}}}) == (NodeRoom(4.0, 0.0, 1.0, 0.0, "n"),)


def test_reports_that_differ_are_counted() -> None:
    reports = UsageReports()
    for stamp, number in ((1.0, 1), (1.0, 1), (2.0, 2)):
        reports.read(report(stamp))
        assert reports.number == number


def test_answers_of_the_moment_are_counted_as_far_apart_as_nodes_tell_of_changes() -> None:
    time = [0.0]
    reports = UsageReports(lambda: time[0])
    for at, number in ((0.0, 1), (1.9, 1), (2.0, 2), (3.0, 2)):
        time[0] = at
        reports.note_live()
        assert reports.number == number


# As Ray 2.60 answered for groups on three nodes; cut down to what is read.
GROUPS = [
    {
        "placement_group_id": "0c76dda3d5caac2c56541b5b733501000000",
        "creator_job_id": "01000000",
        "state": "CREATED",
        "bundles": [
            {"bundle_id": {"bundle_index": 0}, "unit_resources": {"CPU": 1.0}, "node_id": "id1", "label_selector": {}},
            {"bundle_id": {"bundle_index": 1}, "unit_resources": {"CPU": 1.0, "GPU": 1.0}, "node_id": "id2"},
        ],
    },
    {
        "creator_job_id": "01000000",
        "state": "CREATED",
        "bundles": [{"unit_resources": {"CPU": 0.5}, "node_id": "id2"}],
    },
    {"creator_job_id": "02000000", "state": "CREATED", "bundles": [{"unit_resources": {"CPU": 3}, "node_id": "id2"}]},
    {"creator_job_id": "01000000", "state": "PENDING", "bundles": [{"unit_resources": {"CPU": 9}, "node_id": ""}]},
]


def ray(status: dict[str, Any], summary: dict[str, Any], num_nodes: int = 2, same_address: bool = False) -> RayLauncher:
    """A Ray that answers so."""
    totals = ({"CPU": 4}, {"CPU": 8, "GPU": 2})
    nodes = [
        {
            "state": "ALIVE",
            "node_id": f"id{n}",
            "node_ip": f"10.0.0.{1 if same_address else n}",
            "resources_total": all_of,
        }
        for n, all_of in enumerate(totals, 1)
    ][:num_nodes]
    listing = {"total": num_nodes, "num_after_truncation": num_nodes, "result": nodes}
    answers = {
        "/api/v0/nodes": {"data": {"result": listing}},
        "/api/cluster_status": status,
        "/nodes": summary,
        "/api/v0/placement_groups": {"data": {"result": {"result": GROUPS}}},
        "/api/jobs/a-a1": {"status": "RUNNING", "job_id": "01000000"},
        "/api/jobs/over-a1": {"status": "SUCCEEDED", "job_id": "02000000"},
    }

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v0/placement_groups":
            asked = request.url.params
            assert (asked["filter_keys"], asked["filter_values"], asked["detail"]) == ("state", "CREATED", "true")
        return httpx.Response(200, text=json.dumps(answers[request.url.path]))

    return RayLauncher(Settings(), httpx.MockTransport(handler))


def nodes_of(launcher: RayLauncher) -> tuple[NodeRoom, ...] | None:
    found = launcher.capacity()
    assert found is not None
    return found.nodes


BY_ID = tuple(replace(room, node_id=f"id{n}") for n, room in enumerate(ROOMS, 1))
LINES = {"data": {"nodeLogicalResources": {f"id{n}": line for n, line in enumerate(SUMMARY.values(), 1)}}}


def test_the_launcher_asks_for_lines_only_where_there_is_no_report() -> None:
    assert nodes_of(ray(report(), {})) == BY_ID
    assert nodes_of(ray({"data": {"clusterStatus": None}}, LINES)) == BY_ID
    assert nodes_of(ray({"data": {}}, LINES)) is None


def test_a_node_whose_address_another_has_too_has_no_name() -> None:
    assert nodes_of(ray(report(), {}, same_address=True)) == tuple(replace(room, node_id="") for room in ROOMS)


def test_use_of_a_node_that_has_gone_is_not_believed() -> None:
    assert ray(report(), {}, num_nodes=1).capacity() == Capacity(4, 0)


def test_of_programs_that_live_it_is_told_what_their_groups_hold_of_each_node() -> None:
    launcher = ray(report(), {})
    for name in ("a-a1", "over-a1"):
        launcher.status(name)
    found = launcher.capacity()
    assert found is not None
    assert found.holdings == {"a-a1": (Holding("id1", 1.0, 0.0), Holding("id2", 1.5, 1.0))}


@pytest.mark.parametrize("answer", [{}, {"data": {"result": {"result": [{"state": "CREATED"}]}}}, {"data": []}])
def test_groups_that_are_not_understood_are_not_told(answer: dict[str, Any]) -> None:
    assert holdings_of(answer, {"01000000": "a-a1"}) == {}
