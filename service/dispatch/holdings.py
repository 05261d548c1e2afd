"""On which nodes the placement groups of our programs are, as Ray's state API words it (2.60). Parsed with care.

Workers of Ray Train and trials of Ray Tune are in placement groups; calls of plain functions are in none, and where
those are Ray does not say at any price that could be paid every few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.queueing.records import Holding, NodeRoom

QUERY: dict[str, str | int] = {
    "detail": "true",
    "limit": 10_000,
    "filter_keys": "state",
    "filter_predicates": "=",
    "filter_values": "CREATED",
}
"""Of `GET /api/v0/placement_groups`."""


def named_by_id(rooms: Sequence[NodeRoom], nodes: Sequence[Mapping[str, Any]]) -> tuple[NodeRoom, ...]:
    """Reports name a node by its address or by its id: here by its id, and by nothing where two have one address.

    Args:
        rooms: as a report names them.
        nodes: of `GET /api/v0/nodes`.
    """
    addresses: dict[str, list[str]] = {}
    for node in nodes:
        addresses.setdefault(str(node.get("node_ip")), []).append(str(node.get("node_id")))
    ids = {str(node.get("node_id")) for node in nodes}

    def name_of(name: str) -> str:
        at_address = addresses.get(name, [])
        return name if name in ids else at_address[0] if len(at_address) == 1 else ""

    return tuple(replace(room, node_id=name_of(room.node_id)) for room in rooms)


def holdings_of(answer: Mapping[str, Any], programs: Mapping[str, str]) -> dict[str, tuple[Holding, ...]]:
    """By submission, what its placement groups hold of each node; of an answer that is not understood nothing.

    Args:
        answer: to `QUERY`.
        programs: submissions by Ray's id of their driver's job.
    """
    held: dict[tuple[str, str], tuple[float, float]] = {}
    try:
        for group in answer["data"]["result"]["result"]:
            submission_id = programs.get(group["creator_job_id"])
            if submission_id is None or group["state"] != "CREATED":
                continue
            for bundle in group["bundles"]:
                resources, key = bundle["unit_resources"], (submission_id, str(bundle["node_id"]))
                cpus, gpus = held.get(key, (0.0, 0.0))
                held[key] = cpus + float(resources.get("CPU", 0)), gpus + float(resources.get("GPU", 0))
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    found: dict[str, tuple[Holding, ...]] = {}
    for (submission_id, node_id), (cpus, gpus) in sorted(held.items()):
        found[submission_id] = (*found.get(submission_id, ()), Holding(node_id, cpus, gpus))
    return found
