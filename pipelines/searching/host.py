"""What the process that runs a trial holds of the cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.specs.compute import WorkerSpec


class HostSpec(WorkerSpec):
    """A process that only waits for the trial's workers, which Ray Train starts: a share of a CPU of its own, however
    small, and on a cluster that is just large enough they would never get theirs.
    """

    cpus_per_worker: Annotated[float, Field(ge=0)] = 0.0


def host_of(compute: WorkerSpec) -> WorkerSpec:
    """Of one worker the worker itself, of several a process that holds nothing."""
    return compute if compute.num_workers == 1 else HostSpec()


def one_worker_of(compute: WorkerSpec) -> WorkerSpec:
    """One of the workers, for what needs one when the others have ended."""
    return compute.model_copy(update={"num_workers": 1})
