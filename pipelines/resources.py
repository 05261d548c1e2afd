"""What a job asks of the cluster, held against what the cluster has; and calls that run on it side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray

from pipelines.errors import ResourceError
from pipelines.specs.compute import WorkerSpec

_Argument = TypeVar("_Argument")
_Returned = TypeVar("_Returned")

WAIT_SECONDS = 1.0
"""Between two looks at whether anything is done."""


def check_resources(compute: WorkerSpec) -> None:
    """Refuse at once what the cluster can never give, where Ray would wait for ever.

    Raises:
        ResourceError: the cluster is too small, or none of its nodes has room for a worker.
    """
    available = ray.cluster_resources()
    for name, wanted in (("CPU", compute.num_cpus), ("GPU", float(compute.num_gpus))):
        if wanted > available.get(name, 0.0):
            raise ResourceError(
                f"compute.num_workers × compute.{name.lower()}s_per_worker must be at most the cluster's "
                f"{available.get(name, 0.0):g} {name}s, got {wanted:g}"
            )
    per_worker = {"CPU": compute.cpus_per_worker, "GPU": float(compute.gpus_per_worker)}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    slots = sum(
        min(int(node.get(name, 0.0) / wanted) for name, wanted in per_worker.items() if wanted) for node in nodes
    )
    if slots < compute.num_workers:
        raise ResourceError(
            f"compute.num_workers must fit on the cluster's nodes, which have room for {slots} workers of "
            f"{compute.cpus_per_worker:g} CPUs and {compute.gpus_per_worker} GPUs, got {compute.num_workers}"
        )


def run_side_by_side(
    function: Callable[[_Argument], _Returned],
    arguments: Sequence[_Argument],
    compute: WorkerSpec,
    waiting: Callable[[int], None],
) -> Iterator[tuple[int, _Returned]]:
    """Call a function with each argument, at most `compute.num_workers` calls at a time, each in a process of Ray's.

    Processes are used again for later calls, so that only the first ones pay for a start, unless they have a GPU. A
    call whose process was lost is made again. When one fails, or `waiting` raises, no further call is made; those that
    run go on until they end or this process does. They are not cancelled: where a call ends at the moment it is, Ray
    2.60 takes down the process that made it ("Tried to complete task that was not pending").

    Args:
        function: the call.
        arguments: one for each call.
        compute: how many at a time, and what each of them has.
        waiting: called every second or so with the number of calls that are done; what it raises is raised here.

    Yields:
        Place of the argument and what the call returned, as they end.

    Raises:
        PipelineError: what the first call that failed raised.
    """
    remote: Any = ray.remote(
        num_cpus=compute.cpus_per_worker,
        num_gpus=compute.gpus_per_worker,
        max_retries=3,
        # A process keeps the GPU it has first seen, and its memory there, until it ends.
        max_calls=1 if compute.gpus_per_worker else 0,
    )(function)
    waiting_places = list(range(len(arguments)))[::-1]
    running: dict[Any, int] = {}
    num_done = 0
    while waiting_places or running:
        while waiting_places and len(running) < compute.num_workers:
            place = waiting_places.pop()
            running[remote.remote(arguments[place])] = place
        done, _ = ray.wait(list(running), timeout=WAIT_SECONDS)
        for reference in done:
            returned: _Returned = ray.get(reference)
            place = running.pop(reference)
            num_done += 1
            yield place, returned
        waiting(num_done)
