"""The data-parallel workers of one job, as the training loop sees them: rank, device, reductions, threads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from electra_core.kernels import use_native_kernels, use_onednn_for_float32_products
from electra_core.native.library import NativeLibrary
from pipelines.specs.compute import WorkerSpec
from pipelines.training.native_build import build_native_library
from pipelines.training.precision import processor
from pipelines.training.shared_memory import SharedMemory

_Function = TypeVar("_Function", bound=Callable[..., Any])

CPU = torch.device("cpu")
BUCKET_ELEMENTS = 1 << 23
"""Of gradients sent in one message between CPU workers of several machines: 32 MB."""


@dataclass(frozen=True)
class Worker:
    """This process among the workers of a job."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = CPU
    shared_memory: SharedMemory | None = None
    """With all other workers, where they are on one machine and compute on its CPUs."""
    compile_backend: str | Callable[..., Any] | None = None
    """Whom torch.compile gives the step's graphs to: "inductor" on GPUs; None compiles nothing."""

    @property
    def is_first(self) -> bool:
        """Rank 0 reports, logs and saves."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """This worker's part of `count` things: a run of equal length on every worker where it divides."""
        return range(self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size)

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the workers, in place."""
        if self.shared_memory and _is_shareable(values):
            self.shared_memory.sum_([values])
        elif self.world_size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, values: Tensor) -> Tensor:
        """Concatenate 1-dim tensors of any lengths over the workers, in rank order, on every worker."""
        if self.world_size == 1:
            return values
        lengths = torch.zeros(self.world_size, dtype=torch.int64, device=self.device)
        lengths[self.rank] = values.shape[0]
        counts: Sequence[int] = self.sum(lengths).tolist()
        padded = torch.zeros(max(counts), dtype=values.dtype, device=self.device)
        padded[: values.shape[0]] = values
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def gather_equal(self, values: Tensor) -> Tensor:
        """Tensors of one shape laid end to end over the workers, in rank order; nothing waits for the device."""
        if self.world_size == 1:
            return values
        if self.shared_memory and _is_shareable(values):
            return self.shared_memory.gather(values)
        parts = [torch.empty_like(values) for _ in range(self.world_size)]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    def compiled(self, function: _Function) -> _Function:
        """The same as one graph, made anew only for another shape; or as it is, where nothing is compiled."""
        if self.compile_backend is None:
            return function
        # A curriculum may have more shapes than the 8 that torch puts up with, where one graph is asked for.
        torch._dynamo.config.recompile_limit = 64
        graph: Any = torch.compile(function, fullgraph=True, dynamic=False, backend=self.compile_backend)
        return graph  # type: ignore[no-any-return]

    def parallelise(self, networks: nn.Module) -> nn.Module:
        """Wrap in DistributedDataParallel where there are several GPUs: it sums gradients during the backward pass, or
        where that is one graph, at its end.

        A CPU cannot compute while it sends, so there the loop calls `sum_gradients` after the backward pass.
        """
        if self.world_size == 1 or self.device.type == "cpu":
            return networks
        return self.distributed(networks)

    def distributed(self, networks: nn.Module) -> nn.Module:
        """Wrap in DistributedDataParallel that sums, on any device."""
        model = DistributedDataParallel(
            networks,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            forward_sync_buffers=False,  # buffers are constants
            gradient_as_bucket_view=True,  # no second copy of every gradient
        )
        model.register_comm_hook(None, lambda _, bucket: _sum_bucket(bucket))  # torch reads the annotations of hooks
        return model

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over the workers, where `parallelise` has not seen to it."""
        if self.world_size == 1 or self.device.type != "cpu":
            return
        gradients = [_contiguous_gradient(parameter) for parameter in parameters if parameter.grad is not None]
        if self.shared_memory and all(map(_is_shareable, gradients)):
            self.shared_memory.sum_(gradients)
            return
        for bucket in _buckets(gradients):
            together = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(together)
            parts = together.split([gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))


def _is_shareable(values: Tensor) -> bool:
    return values.dtype == torch.float32 and values.device.type == "cpu" and values.is_contiguous()


def _contiguous_gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    parameter.grad = parameter.grad.contiguous()
    return parameter.grad


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Runs of tensors of at most `BUCKET_ELEMENTS`, or of one that is larger."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and sum(other.numel() for other in bucket) + tensor.numel() > BUCKET_ELEMENTS:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _sum_bucket(bucket: Any) -> torch.futures.Future[Tensor]:
    """DistributedDataParallel's own way averages; our losses are parts of a sum."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    future: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


def limit_threads(compute: WorkerSpec) -> None:
    """Use as many threads for matrix products as the worker has CPUs: more would fight over the same cores.

    Bit-for-bit repetition needs it too: the number of threads decides the order of sums inside a product.
    """
    threads = max(1, int(compute.cpus_per_worker))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)


def choose_cpu_kernels() -> NativeLibrary | None:
    """Compute in the fastest way this machine has: call once in a process that trains or evaluates on the CPU.

    The compiled kernels where they can be had, the faster of two exact ways to multiply float32 matrices by the maker
    of the processor, and memory that stays with the process.

    Returns:
        What was compiled, if it could be.
    """
    library = build_native_library()
    use_native_kernels(library)
    keep_freed_memory()
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    if has_avx512 and processor()[0] == "AuthenticAMD":
        use_onednn_for_float32_products()
    return library


WORKER_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}
"""What a training process must find when it starts. `keep_freed_memory` rules the C library's main arena alone, and Ray
Train calls the loop in a thread, which would get an arena of its own: 15 000 page faults, a fifth of a step."""


def keep_freed_memory() -> None:
    """Tell the C library to keep freed memory for the next step, which will want the same.

    By default it gives large blocks back to the kernel and gets them anew, zeroed page by page: a tenth of a step.
    Threads but the main one need `WORKER_ENVIRONMENT` besides.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc
        trim_threshold, mmap_max = -1, -4
        mallopt(mmap_max, 0)
        mallopt(trim_threshold, 2**31 - 1)
