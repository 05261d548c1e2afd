"""The copy of the weights a job starts from: `initial_weights/{weights.safetensors, manifest.json}` in its directory.

Every worker of every attempt reads this copy, so all start alike even if the source changes or disappears meanwhile;
its digest is part of the job's identity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from pipelines import storage
from pipelines.errors import CheckpointError

FORMAT_VERSION = 1
_WEIGHTS, _MANIFEST = "weights.safetensors", "manifest.json"


@dataclass(frozen=True)
class InitialWeights:
    """A complete copy."""

    uri: str
    """Its folder."""
    sha256: str
    """Of weights.safetensors."""


def find_initial_weights(uri: str) -> InitialWeights | None:
    """The copy in a folder, or None where it was never completed."""
    manifest_uri = storage.join(uri, _MANIFEST)
    if not storage.exists(manifest_uri):
        return None
    return InitialWeights(uri, str(storage.read_json(manifest_uri)["sha256"]))


def keep_initial_weights(uri: str, state: Mapping[str, Tensor], about: Mapping[str, Any]) -> InitialWeights:
    """Write the copy; the manifest, with what is said of its origin, comes last."""
    data = safetensors.torch.save({name: tensor.contiguous() for name, tensor in state.items()})
    kept = InitialWeights(uri, hashlib.sha256(data).hexdigest())
    storage.write_bytes(storage.join(uri, _WEIGHTS), data)
    manifest = {"format_version": FORMAT_VERSION, "sha256": kept.sha256, "size_bytes": len(data), **about}
    storage.write_json(storage.join(uri, _MANIFEST), manifest)
    return kept


def start_from(networks: nn.Module, initial: InitialWeights | None) -> None:
    """Replace the seed's start by the copy, where there is one; what the copy lacks keeps the seed's.

    Raises:
        CheckpointError: the file is not the one the digest belongs to, or has a tensor the networks lack.
    """
    if initial is None:
        return
    uri = storage.join(initial.uri, _WEIGHTS)
    data = storage.read_bytes(uri)
    digest = hashlib.sha256(data).hexdigest()
    if digest != initial.sha256:
        raise CheckpointError(f"{uri} must have sha256 {initial.sha256}, got {digest}")
    unexpected = networks.load_state_dict(safetensors.torch.load(data), strict=False).unexpected_keys
    if unexpected:
        raise CheckpointError(f"{uri} must hold weights of these networks alone, got {', '.join(unexpected[:5])} too")
