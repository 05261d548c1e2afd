"""Checkpoints are written beside training: the steps wait for a copy of the state, not for the storage."""

from __future__ import annotations

import contextvars
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from pipelines.claims import Guard, unguarded
from pipelines.errors import JobSuperseded
from pipelines.storage import StorageError
from pipelines.training.checkpoint import state_of, write_checkpoint

log = logging.getLogger(__name__)


RETRY_SECONDS = (1.0, 10.0)
"""Waits before a write that the storage refused is tried again, with the copy that is at hand."""


class CheckpointWriter:
    """Writes one checkpoint at a time in a thread of its own.

    A context: its end waits for what is being written, however the block ended. While it writes it holds one copy of
    the state in host memory.

    Args:
        checkpoints_uri: folder of the job's checkpoints.
        identity: of the job's task; see `restore_checkpoint`.
        keep: checkpoints that stay.
        guard: see `write_checkpoint`.
    """

    def __init__(self, checkpoints_uri: str, identity: str, keep: int, guard: Guard = unguarded) -> None:
        self._checkpoints_uri = checkpoints_uri
        self._identity = identity
        self._keep = keep
        self._guard = guard
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failure = self._wait()
        self._executor.shutdown()
        if failure is not None:
            if error is None:
                raise failure
            _log_failure(failure)  # what ended the block is what the caller must hear

    def save(self, step: int, networks: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Copy the state and begin to write it, once the write before has ended.

        If that one failed, this newer checkpoint stands in for it.

        Raises:
            JobSuperseded: that one was refused.
        """
        failure = self._wait()
        if isinstance(failure, JobSuperseded):
            raise failure
        if failure is not None:
            _log_failure(failure)
        state = _copied(state_of(networks, optimizer), {})
        # A thread starts without the context of the log: job and rank.
        self._writing = self._executor.submit(contextvars.copy_context().run, self._write, step, state)

    def raise_if_failed(self) -> None:
        """Return at once where nothing was saved, or it is still being written.

        Raises:
            StorageError: the last write failed, however often it was tried.
            JobSuperseded: it was refused.
        """
        if self._writing is not None and self._writing.done():
            failure = self._wait()
            if failure is not None:
                raise failure

    def _wait(self) -> BaseException | None:
        """Return when nothing is being written, with what the last write failed of."""
        writing, self._writing = self._writing, None
        return None if writing is None else writing.exception()

    def _write(self, step: int, state: dict[str, Any]) -> None:
        for seconds in (*RETRY_SECONDS, None):
            try:
                checkpoint = write_checkpoint(
                    self._checkpoints_uri, step, state, self._identity, self._keep, self._guard
                )
            except StorageError as error:
                if seconds is None:
                    raise
                log.warning("checkpoint_write_is_tried_again", extra={"step": step, "reason": str(error)})
                time.sleep(seconds)
            else:
                log.info("checkpoint_saved", extra={"step": step, "uri": checkpoint.uri})
                return


def _log_failure(failure: BaseException) -> None:
    log.error("checkpoint_failed", exc_info=failure)


def _copied(value: Any, seen: dict[tuple[Any, ...], Tensor]) -> Any:
    """The same value with every tensor copied to the host, one that stands there under two names once."""
    match value:
        case Tensor():
            place = (value.device, value.dtype, value.data_ptr(), value.shape, value.stride())
            if place not in seen:
                seen[place] = value.detach().to("cpu", copy=True)
            return seen[place]
        case dict():
            return {key: _copied(item, seen) for key, item in value.items()}
        case list():
            return [_copied(item, seen) for item in value]
        case _:
            return value
