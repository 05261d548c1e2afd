"""Resumable checkpoints: `{job_uri}/checkpoints/step_00001000/{state.pt, manifest.json}`.

They hold weights, optimizer state and the step. Nothing else is needed: data order, masking, dropout and sampling are
pure functions of (seed, step, row), so there is no iterator and no random state to save, and a checkpoint opens under
any number of workers. They are the job's own files rather than Ray Train's, so that any attempt, under any launcher,
finds them, and no report barrier holds up the workers.
"""

from __future__ import annotations

import hashlib
import io
import logging
from dataclasses import dataclass
from typing import IO, Any, cast

import torch
from torch import nn

from pipelines import storage
from pipelines.claims import Guard, unguarded
from pipelines.errors import CheckpointError

log = logging.getLogger(__name__)

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint in storage."""

    uri: str
    step: int
    """Optimizer steps taken."""
    sha256: str
    """Of state.pt."""


def state_of(networks: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What a checkpoint holds: live tensors, which the next step changes."""
    return {"networks": networks.state_dict(), "optimizer": optimizer.state_dict()}


def write_checkpoint(
    checkpoints_uri: str, step: int, state: dict[str, Any], identity: str, keep: int, guard: Guard = unguarded
) -> Checkpoint:
    """Write a checkpoint, then delete all but the newest `keep`.

    The manifest is written last: a checkpoint without one was never finished, and is not seen.

    Args:
        checkpoints_uri: folder of the job's checkpoints.
        step: optimizer steps taken.
        state: of `state_of`, or a copy of it.
        identity: digest of what must not change between saving and resuming; see `restore_checkpoint`.
        keep: checkpoints that stay, this one included.
        guard: called before the checkpoint is made to count, and before others are deleted.

    Raises:
        JobSuperseded: the guard says that another process has the job by now; what was written is no checkpoint.
        StorageError: the storage refused. Checkpoints before this one are as they were, unless it was their deletion
            that failed.
    """
    uri = storage.join(checkpoints_uri, f"step_{step:08d}")
    with storage.open_output(storage.join(uri, "state.pt")) as output:
        counted = _Counted(output)
        try:
            torch.save(state, cast("IO[bytes]", counted))  # asks for no more than write and flush
        except RuntimeError:  # torch's own, about where it stands in the file
            if counted.failure is not None:
                raise counted.failure from None
            raise
    checkpoint = Checkpoint(uri, step, counted.digest.hexdigest())
    manifest = {
        "format_version": FORMAT_VERSION,
        "step": step,
        "identity": identity,
        "size_bytes": counted.size,
        "sha256": checkpoint.sha256,
    }
    guard()
    storage.write_json(storage.join(uri, "manifest.json"), manifest)
    guard()
    for old in list_checkpoints(checkpoints_uri)[:-keep]:
        storage.delete_tree(old.uri)
    return checkpoint


class _Counted:
    """A stream that knows the length and digest of what went through it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.size = 0
        self.failure: OSError | None = None
        """The first one: torch goes on to close its archive, and complains about that instead."""

    def write(self, data: bytes) -> int:
        try:
            written = self._stream.write(data)
        except OSError as error:
            self.failure = self.failure or error
            raise
        self.digest.update(data)
        self.size += len(data)
        return written

    def flush(self) -> None:
        self._stream.flush()


def list_checkpoints(checkpoints_uri: str) -> list[Checkpoint]:
    """Complete checkpoints, oldest first."""
    found = []
    for uri in storage.list_directory(checkpoints_uri):
        manifest_uri = storage.join(uri, "manifest.json")
        if storage.exists(manifest_uri):
            manifest = storage.read_json(manifest_uri)
            found.append(Checkpoint(uri, int(manifest["step"]), str(manifest["sha256"])))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def read_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """The tensors of a checkpoint, on the CPU.

    Raises:
        CheckpointError: the file is not the one its manifest describes.
    """
    data = storage.read_bytes(storage.join(checkpoint.uri, "state.pt"))
    digest = hashlib.sha256(data).hexdigest()
    if digest != checkpoint.sha256:
        raise CheckpointError(f"{checkpoint.uri}/state.pt must have sha256 {checkpoint.sha256}, got {digest}")
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


def restore_checkpoint(
    checkpoints_uri: str,
    networks: nn.Module,
    optimizer: torch.optim.Optimizer,
    identity: str,
    only_step: int | None = None,
) -> int:
    """Load the newest sound checkpoint, or only that of one step; returns its step, or 0 where there is none.

    A damaged file is passed over with a warning for the one before it: repeating some steps gives the same weights.

    Raises:
        CheckpointError: the newest checkpoint belongs to another spec or corpus.
        StorageError: a checkpoint cannot be read now. It is not passed over: with several workers, each of them must
            come to the same one.
    """
    for checkpoint in reversed(list_checkpoints(checkpoints_uri)):
        if only_step is not None and checkpoint.step != only_step:
            continue
        saved_identity = storage.read_json(storage.join(checkpoint.uri, "manifest.json"))["identity"]
        if saved_identity != identity:
            raise CheckpointError(
                f"{checkpoint.uri} must come from the same spec and corpus (identity {identity}), got {saved_identity}"
            )
        try:
            state = read_state(checkpoint)
        except CheckpointError as error:
            log.warning("checkpoint_skipped", extra={"uri": checkpoint.uri, "reason": str(error)})
            continue
        networks.load_state_dict(state["networks"])
        optimizer.load_state_dict(state["optimizer"])
        return checkpoint.step
    return 0
