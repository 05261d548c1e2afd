"""Checkpoints are written beside training: the steps wait for a copy of the state, not for the storage."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from pipelines.training.checkpoint import state_of, write_checkpoint

log = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes one checkpoint at a time in a thread of its own.

    A context: its end waits for what is being written, however the block ended. A write that fails is raised by the
    next `save` or at the end of the block. Costs one copy of the state in host memory while writing.

    Args:
        checkpoints_uri: folder of the job's checkpoints.
        identity: of the job's task; see `restore_checkpoint`.
        keep: checkpoints that stay.
    """

    def __init__(self, checkpoints_uri: str, identity: str, keep: int) -> None:
        self._checkpoints_uri = checkpoints_uri
        self._identity = identity
        self._keep = keep
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._wait()
        except Exception:
            if error is None:
                raise
            log.exception("checkpoint_failed")  # what ended the block is what the caller must hear
        finally:
            self._executor.shutdown()

    def save(self, step: int, networks: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Copy the state and begin to write it, once the checkpoint before is complete.

        Raises:
            StorageError: the checkpoint before could not be written.
        """
        self._wait()
        state = _copied(state_of(networks, optimizer), {})
        self._writing = self._executor.submit(self._write, step, state)

    def _wait(self) -> None:
        """Return when nothing is being written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, step: int, state: dict[str, Any]) -> None:
        checkpoint = write_checkpoint(self._checkpoints_uri, step, state, self._identity, self._keep)
        log.info("checkpoint_saved", extra={"step": step, "uri": checkpoint.uri})


def _copied(value: Any, seen: dict[tuple[Any, ...], Tensor]) -> Any:
    """The same value with every tensor copied to the host. Tensors that share memory share it in the copy too."""
    match value:
        case Tensor():
            place = (value.device, value.dtype, value.data_ptr(), value.shape, value.stride())
            if place not in seen:
                seen[place] = value.detach().to("cpu", copy=True)
            return seen[place]
        case dict():
            return {key: _copied(item, seen) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_copied(item, seen) for item in value)
        case _:
            return value
