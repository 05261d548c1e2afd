"""Ray Data as this project uses it: pieces of work in, results out in the order of the pieces, quietly.

Tasks ask for half a CPU, so that a corpus is prepared beside whatever else holds the rest, but never more of them
run at once than the cluster has CPUs. Where nothing comes for a while, the caller hears why.
"""

from __future__ import annotations

import logging
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import ray
import ray.data

from pipelines.errors import PipelineError, ResourceError

CPUS_PER_TASK = 0.5
_MOST_BLOCKS = 4096
_QUIET_SECONDS = 30.0
"""Silence after which a full cluster is worth a word."""
_STARVED_SECONDS = 30 * 60.0
_DONE = object()


def map_in_order(
    items: Sequence[Any],
    function: Callable[[Any], Iterator[Any]],
    waiting: Callable[[str | None], None] = lambda why: None,
) -> Iterator[Any]:
    """Yield everything `function` yields for each item, in the order of the items, computed by Ray tasks.

    Args:
        items: picklable descriptions of work; the text itself is read by the tasks.
        function: a module-level generator function (or a partial of one) yielding picklable results.
        waiting: called about once a second while nothing comes, with a reason where one is known. It may raise, and
            that ends the work.

    Raises:
        PipelineError: what `function` raised.
        ResourceError: no CPU was free for half an hour.
    """
    if not items:
        return
    results: queue.Queue[Any] = queue.Queue(maxsize=16)
    stopped = threading.Event()
    dataset = _dataset(items, function)
    thread = threading.Thread(target=_pump, args=(dataset, results, stopped), name="ray-data", daemon=True)
    thread.start()
    try:
        while (result := _next(results, waiting)) is not _DONE:
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        stopped.set()
        thread.join(timeout=10)


def _dataset(items: Sequence[Any], function: Callable[[Any], Iterator[Any]]) -> Any:
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)  # warns that its bars are off
    num_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    rows = [{"item": pickle.dumps(item)} for item in items]
    dataset: Any = ray.data.from_items(rows, override_num_blocks=min(len(rows), _MOST_BLOCKS))
    context = dataset.context
    context.execution_options.preserve_order = True
    context.execution_options.verbose_progress = False
    context.enable_progress_bars = False
    context.enable_operator_progress_bars = False
    context.print_on_execution_start = False
    return dataset.map_batches(
        _apply,
        fn_kwargs={"function": function},
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=CPUS_PER_TASK,
        compute=ray.data.TaskPoolStrategy(size=min(num_cpus, len(items))),
    )


def _apply(table: pa.Table, function: Callable[[Any], Iterator[Any]]) -> Iterator[pa.Table]:
    for item in table["item"]:
        try:
            for result in function(pickle.loads(item.as_py())):  # noqa: S301 - written a moment ago, by this job
                yield _row(result)
        except PipelineError as error:
            # As a value: raised, it would come back wrapped, and after Ray's retries.
            yield _row(error)


def _row(result: Any) -> pa.Table:
    data = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    return pa.table({"result": pa.array([data], pa.large_binary())})


def _pump(dataset: Any, results: queue.Queue[Any], stopped: threading.Event) -> None:
    try:
        for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for value in table["result"]:
                _put(results, pickle.loads(value.as_buffer()), stopped)  # noqa: S301 - as above
                if stopped.is_set():
                    return
    except BaseException as error:  # noqa: BLE001 - carried to the thread that waits for it
        _put(results, error, stopped)
    else:
        _put(results, _DONE, stopped)


def _put(results: queue.Queue[Any], value: Any, stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            results.put(value, timeout=1)
        except queue.Full:
            continue
        return


def _next(results: queue.Queue[Any], waiting: Callable[[str | None], None]) -> Any:
    started = time.monotonic()
    while True:
        try:
            return results.get(timeout=1)
        except queue.Empty:
            silence = time.monotonic() - started
        why = _why_silent() if silence > _QUIET_SECONDS else None
        waiting(why)
        if why is not None and silence > _STARVED_SECONDS:
            raise ResourceError(f"{why} for {silence / 60:.0f} minutes; stop other jobs or add nodes")


def _why_silent() -> str | None:
    free = ray.available_resources().get("CPU", 0.0)
    if free >= CPUS_PER_TASK:
        return None
    return f"no CPU is free: {ray.cluster_resources().get('CPU', 0.0):g} in the cluster, {free:g} unused"
