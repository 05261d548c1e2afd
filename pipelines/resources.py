"""What a job asks of the cluster, held against what the cluster has; and calls that run on it side by side."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, WorkerCrashedError

from pipelines.errors import ResourceError
from pipelines.joblogs.context import call_name, current_context, kept_call
from pipelines.specs.compute import WorkerSpec

log = logging.getLogger(__name__)

_Argument = TypeVar("_Argument")
_Returned = TypeVar("_Returned")

WAIT_SECONDS = 1.0
"""Between two looks at whether anything is done."""
MAX_LOSSES = 3
"""Times a call is made again whose process was lost."""


def check_resources(compute: WorkerSpec, section: str = "compute") -> None:
    """Refuse at once what the cluster can never give, where Ray would wait for ever.

    Args:
        compute: what is wanted.
        section: of the spec, for the message.

    Raises:
        ResourceError: the cluster is too small, or none of its nodes has room for a worker.
    """
    available = ray.cluster_resources()
    for name, wanted in (("CPU", compute.num_cpus), ("GPU", float(compute.num_gpus))):
        if wanted > available.get(name, 0.0):
            raise ResourceError(
                f"{section}.num_workers × {section}.{name.lower()}s_per_worker must be at most the cluster's "
                f"{available.get(name, 0.0):g} {name}s, got {wanted:g}"
            )
    per_worker = {"CPU": compute.cpus_per_worker, "GPU": float(compute.gpus_per_worker)}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    slots = sum(
        min(int(node.get(name, 0.0) / wanted) for name, wanted in per_worker.items() if wanted) for node in nodes
    )
    if slots < compute.num_workers:
        raise ResourceError(
            f"{section}.num_workers must fit on the cluster's nodes, which have room for {slots} workers of "
            f"{compute.cpus_per_worker:g} CPUs and {compute.gpus_per_worker} GPUs, got {compute.num_workers}"
        )


def has_room_beside(reserved: WorkerSpec, wanted: WorkerSpec, num_running: int) -> bool:
    """Whether one more call has room, now and when all workers of another stage are there.

    Args:
        reserved: the other stage's workers; some of them may be lost at the moment, and will want their place back.
        wanted: what the call has.
        num_running: such calls that run already.
    """
    cluster, free = ray.cluster_resources(), ray.available_resources()
    return all(
        free.get(name, 0.0) >= each and cluster.get(name, 0.0) - others >= (num_running + 1) * each
        for name, each, others in (
            ("CPU", wanted.cpus_per_worker, reserved.num_cpus),
            ("GPU", wanted.gpus_per_worker, reserved.num_gpus),
        )
        if each
    )


def run_side_by_side(
    function: Callable[[_Argument], _Returned],
    arguments: Sequence[_Argument],
    compute: WorkerSpec,
    waiting: Callable[[int], object],
    has_room: Callable[[int], bool] | None = None,
    log_prefix: str = "",
) -> Iterator[tuple[int, _Returned]]:
    """Call a function with each argument, at most `compute.num_workers` calls at a time, each in a process of Ray's.

    Processes are used again for later calls, so that only the first ones pay for a start, unless they have a GPU. A
    call whose process was lost is made again, `MAX_LOSSES` times. When one fails, or `waiting` raises, no further call
    is made; those that run go on until they end or this process does. They are not cancelled: where a call ends at the
    moment it is, Ray 2.60 takes down the process that made it ("Tried to complete task that was not pending").

    Args:
        function: the call.
        arguments: one for each call.
        compute: how many at a time, and what each of them has.
        waiting: called every second or so with the number of calls that are done; what it raises is raised here.
        has_room: asked before each call, with the number of calls that run; where it says no the call waits here. None
            leaves that to Ray.
        log_prefix: before the names under which the calls keep their logs.

    Yields:
        Place of the argument and what the call returned, as they end.

    Raises:
        PipelineError: what the first call that failed raised.
        ResourceError: a call was ended again and again for the memory it took.
    """
    remote: Any = ray.remote(
        num_cpus=compute.cpus_per_worker,
        num_gpus=compute.gpus_per_worker,
        max_retries=0,  # counted here: Ray itself would go on for ever with a call that takes too much memory
        # A process keeps the GPU it has first seen, and its memory there, until it ends.
        max_calls=1 if compute.gpus_per_worker else 0,
        # Of a caller that is in a placement group of its own, as Ray Tune's actors are, a call would be held to it.
        scheduling_strategy="DEFAULT",
    )(kept_call)
    logs = current_context()
    waiting_places = list(range(len(arguments)))[::-1]
    running: dict[Any, int] = {}
    losses: Counter[int] = Counter()
    num_done = 0
    while waiting_places or running:
        while waiting_places and len(running) < compute.num_workers and (has_room is None or has_room(len(running))):
            place = waiting_places.pop()
            name = log_prefix + call_name(function, arguments[place], place)
            running[remote.options(name=name).remote(logs, name, function, arguments[place])] = place
        for reference in _finished(running):
            place = running.pop(reference)
            try:
                returned: _Returned = ray.get(reference)
            except (WorkerCrashedError, NodeDiedError, ObjectLostError, OutOfMemoryError) as error:
                losses[place] += 1
                _check_losses(losses[place], error)
                waiting_places.insert(0, place)  # the last to be tried again: what it met with may have passed by then
                continue
            num_done += 1
            yield place, returned
        waiting(num_done)


def _finished(running: dict[Any, int]) -> list[Any]:
    """Calls that are done, as soon as there is one; none after `WAIT_SECONDS`."""
    if not running:
        time.sleep(WAIT_SECONDS)
        return []
    done, _ = ray.wait(list(running), timeout=WAIT_SECONDS)
    return list(done)


def _check_losses(count: int, error: Exception) -> None:
    log.warning("process_lost", extra={"count": count, "reason": str(error)[:300]})
    if count <= MAX_LOSSES:
        return
    if isinstance(error, OutOfMemoryError):
        raise ResourceError(
            f"Ray ended a process {count} times for the memory it took; lower compute.num_workers, batch sizes or "
            f"lengths, or give the job larger nodes: {str(error)[:300]}"
        ) from error
    raise error
