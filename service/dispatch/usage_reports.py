"""What Ray says of its nodes' use, as its dashboard words it (2.60). Parsed with care: it is made for Ray's own pages.

Ray's monitor writes a report every five seconds, with what tasks, actors and placement groups hold. Nobody takes it
away when the monitor dies, so one that stays the same for long is no word on now.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from service.queueing.records import NodeRoom

STALE_SECONDS = 30.0
"""The same report for so long is none."""
LIVE_SECONDS = 2.0
"""Where Ray answers from what it knows at the moment, an answer so much later counts as another report: nodes tell of
changes within a second."""
_LINE = re.compile(
    r"^(?P<used>[0-9.eE+-]+)/(?P<total>[0-9.eE+-]+) (?P<name>CPU|GPU)"
    r"(?: \((?P<in_groups>[0-9.eE+-]+) used of (?P<groups>[0-9.eE+-]+) reserved in placement groups\))?$"
)


class UsageReports:
    """The reports of one cluster, as they come."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds from any start."""
        self._clock = clock
        self._stamp: object = None
        self._seen_at = clock()
        self.is_absent = False
        """The last answer had no report in it, which is not to say an unreadable or an old one."""
        self.number = 0
        """How many different ones there were."""

    def note_live(self) -> None:
        """Ray has answered from what it knows at the moment instead."""
        if not self.number or self._clock() - self._seen_at >= LIVE_SECONDS:
            self._count(None)

    def read(self, answer: Mapping[str, Any]) -> tuple[NodeRoom, ...] | None:
        """The nodes of an answer to `GET /api/cluster_status`; None where it does not say what is free now."""
        try:
            status = answer["data"]["clusterStatus"]
            self.is_absent = status is None
            if status is None or self._is_stale(status.get("time")):
                return None
            report = status["loadMetricsReport"]
            usages = report.get("usageByNode") or {"": report["usage"]}
            return _rooms(
                (
                    node,
                    {name: (float(usage[name][0]), float(usage[name][1])) for name in ("CPU", "GPU") if name in usage},
                )
                for node, usage in usages.items()
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            return None

    def _is_stale(self, stamp: object) -> bool:
        if stamp != self._stamp:
            self._count(stamp)
        return stamp is not None and self._clock() - self._seen_at > STALE_SECONDS

    def _count(self, stamp: object) -> None:
        self._stamp, self._seen_at = stamp, self._clock()
        self.number += 1


def rooms_of_summary(answer: Mapping[str, Any]) -> tuple[NodeRoom, ...] | None:
    """The nodes of an answer to `GET /nodes?view=summary`, in which a line such as `2.0/4.0 CPU` says what is used. Of
    what placement groups reserve it counts as used only what runs in them; the rest is held all the same.
    """
    try:
        nodes = answer["data"]["nodeLogicalResources"].items()
        return _rooms((node, _lines(text)) for node, text in nodes)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _lines(text: str) -> dict[str, tuple[float, float]]:
    held: dict[str, tuple[float, float]] = {}
    for found in filter(None, map(_LINE.match, text.splitlines())):
        idle = float(found["groups"] or 0) - float(found["in_groups"] or 0)
        held[found["name"]] = (float(found["used"]) + idle, float(found["total"]))
    return held


def _rooms(nodes: Iterable[tuple[str, Mapping[str, tuple[float, float]]]]) -> tuple[NodeRoom, ...] | None:
    """From what is used and what there is of each resource, by the name of the node; None for no nodes."""
    rooms = []
    for name, node in nodes:
        (used_cpus, cpus), (used_gpus, gpus) = node.get("CPU", (0.0, 0.0)), node.get("GPU", (0.0, 0.0))
        rooms.append(NodeRoom(cpus, gpus, max(cpus - used_cpus, 0.0), max(gpus - used_gpus, 0.0), name))
    return tuple(rooms) or None
