"""What a job asks of the Ray cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from electra_core.config import FrozenModel

Precision = Literal["auto", "fp32", "bf16"]
"""What matrix products compute in."""


class WorkerSpec(FrozenModel):
    """Equal workers."""

    num_workers: Annotated[int, Field(ge=1, le=4096)] = 1
    cpus_per_worker: Annotated[float, Field(gt=0, le=1024)] = 1.0
    gpus_per_worker: Annotated[int, Field(ge=0, le=1)] = 0

    def without_gpus(self) -> WorkerSpec:
        """The same workers for what a CPU does."""
        return WorkerSpec(num_workers=self.num_workers, cpus_per_worker=self.cpus_per_worker)

    @property
    def num_cpus(self) -> float:
        """CPUs of all workers."""
        return self.num_workers * self.cpus_per_worker

    @property
    def num_gpus(self) -> int:
        """GPUs of all workers."""
        return self.num_workers * self.gpus_per_worker


class ComputeSpec(WorkerSpec):
    """The workers of a pretraining job."""

    num_workers: Annotated[int, Field(ge=1, le=4096)] = 1
    """Data-parallel training workers."""
    gpus_per_worker: Annotated[int, Field(ge=0, le=1)] = 0
    """1 trains on CUDA with NCCL, 0 on the CPU, where workers exchange through shared memory or gloo."""
    compile: bool = True
    """Whether GPUs run the step as one graph of torch.compile: a minute or more at the start, then far faster steps.
    On CPUs the step is compiled in another way, and this changes nothing."""


class FinetuneComputeSpec(WorkerSpec):
    """The workers of a finetuning job; each finetunes one task with one seed at a time."""

    num_workers: Annotated[int, Field(ge=1, le=4096)] = 1
    """Seeds and tasks that run side by side."""
    gpus_per_worker: Annotated[int, Field(ge=0, le=1)] = 0
    """1 finetunes on CUDA, 0 on the CPU."""


class EvaluateComputeSpec(WorkerSpec):
    """The workers of an evaluation job; each scores one network on one file or source at a time."""

    num_workers: Annotated[int, Field(ge=1, le=4096)] = 1
    """Files and sources that are scored side by side."""
    gpus_per_worker: Annotated[int, Field(ge=0, le=1)] = 0
    """1 scores on CUDA, 0 on the CPU."""
