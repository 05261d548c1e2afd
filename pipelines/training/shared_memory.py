"""Memory that the workers of one machine share, for what they must add up or exchange at every step."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from electra_core.native.library import NativeLibrary

log = logging.getLogger(__name__)

DIRECTORY = Path("/dev/shm")  # noqa: S108 - where Linux keeps memory that has a name
COLLECTIVE_TIMEOUT_SECONDS = 1800
"""Longest wait of one worker for the others, in memory or over the network: rank 0 may be waiting until a large
checkpoint is written."""


class WorkerLostError(RuntimeError):
    """Another worker is gone, or did not come in time."""


class SharedMemory:
    """Sums and gathers of float32 tensors on the CPU: every worker must make the same calls in the same order."""

    def __init__(
        self,
        library: NativeLibrary,
        region: mmap.mmap,
        rank: int,
        world_size: int,
        timeout_seconds: float = COLLECTIVE_TIMEOUT_SECONDS,
    ) -> None:
        """Take a region of `region_bytes`, all zero before the first worker takes it."""
        self._library, self._rank, self._world_size = library, rank, world_size
        self._bytes = np.frombuffer(region, dtype=np.uint8)  # keeps the mapping
        self._region = (ctypes.c_void_p(self._bytes.ctypes.data), rank, world_size, timeout_seconds)
        self._library.exchange("shared_memory_enter", self._region[0], rank)

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Add every tensor up over the workers, in place, in rank order: the same bits everywhere.

        Args:
            tensors: contiguous float32 tensors, of the same shapes on all workers.

        Raises:
            WorkerLostError: a worker died, or did not come in time.
        """
        pointers = (ctypes.c_void_p * len(tensors))(*[tensor.data_ptr() for tensor in tensors])
        counts = (ctypes.c_int64 * len(tensors))(*[tensor.numel() for tensor in tensors])
        self._check(self._library.exchange("shared_memory_sum", *self._region, pointers, counts, sum(counts)))

    def gather(self, values: Tensor) -> Tensor:
        """Lay everyone's tensor end to end along the first dimension, in rank order.

        Args:
            values: contiguous float32, of one shape on all workers.

        Raises:
            WorkerLostError: a worker died, or did not come in time.
        """
        gathered = values.new_empty(self._world_size * values.shape[0], *values.shape[1:])
        self._check(
            self._library.exchange(
                "shared_memory_gather", *self._region, values.data_ptr(), values.numel(), gathered.data_ptr()
            )
        )
        return gathered

    def _check(self, missing: int) -> None:
        if missing:
            why = "is gone" if missing > 0 else f"did not come within {self._region[3]:g} s"
            raise WorkerLostError(f"worker {abs(missing) - 1} {why}; this is worker {self._rank}")


def open_shared_memory(library: NativeLibrary | None, rank: int, world_size: int) -> SharedMemory | None:
    """Share memory with all workers, where all are on one machine and have the compiled functions; else None.

    A collective operation: every worker calls it, and all get the same answer. The name is gone when it returns, so
    nothing is left behind however the workers end.
    """
    if world_size == 1:
        return None
    name = _create(library, world_size) if rank == 0 and library is not None else None
    offers: list[tuple[str | None, str]] = [(name, _process_namespace())]
    try:
        dist.broadcast_object_list(offers, src=0)
        region = _open(library, *offers[0], world_size)
        opened = torch.tensor(int(region is not None))
        dist.all_reduce(opened, op=dist.ReduceOp.MIN)
    finally:
        if name is not None:
            Path(name).unlink(missing_ok=True)
    if not opened or region is None or library is None:
        log.info("no_shared_memory", extra={"reason": "not all workers are on one machine with compiled kernels"})
        return None
    return SharedMemory(library, region, rank, world_size)


def _create(library: NativeLibrary, world_size: int) -> str | None:
    try:
        handle, name = tempfile.mkstemp(prefix="electra-", dir=DIRECTORY)
        try:
            # Really there, not only promised: a container may have little, and would die on the first touch.
            os.posix_fallocate(handle, 0, library.exchange("shared_memory_bytes", world_size))
        except OSError:
            Path(name).unlink()
            raise
        finally:
            os.close(handle)
    except (OSError, AttributeError) as error:  # no such directory, no room; no such call on a Mac
        log.info("no_shared_memory", extra={"reason": str(error)})
        return None
    return name


def _open(library: NativeLibrary | None, name: str | None, namespace: str, world_size: int) -> mmap.mmap | None:
    # Workers tell by process id whether another lives: where ids differ in meaning they cannot.
    if library is None or name is None or namespace != _process_namespace():
        return None
    try:
        with Path(name).open("r+b") as file:
            return mmap.mmap(file.fileno(), library.exchange("shared_memory_bytes", world_size))
    except (OSError, ValueError):
        return None


def _process_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "unknown"
