"""The networks behind a URI, whatever kind of checkpoint it is, in the names of Transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from electra_core.conversion.from_tensorflow import NETWORKS
from electra_core.conversion.to_transformers import exported_state_dicts
from pipelines import storage
from pipelines.errors import CheckpointError
from pipelines.specs.corpus import PretrainedTokenizerSpec
from pipelines.storage import web_guard
from pipelines.tensorflow_checkpoint.bundle import INDEX_SUFFIX
from pipelines.weights.shapes import networks_to_fill
from pipelines.weights.sources import (
    CONFIG_FILE,
    NetworkWeights,
    is_ours,
    read_ours,
    read_tensorflow,
    read_transformers,
)

EXPORTED_AS = {"discriminator": ("discriminator", "encoder"), "generator": ("generator",)}
"""What a network may be called where it is exported; see `exported_networks`."""


@dataclass(frozen=True)
class Collected:
    """What was found."""

    kind: str
    """`our checkpoint`, `Transformers` or `TensorFlow`."""
    networks: Mapping[str, NetworkWeights]
    """By `discriminator`, `encoder` (a main network that detects nothing) and `generator`."""
    vocabulary_uris: tuple[str, ...]
    """Where its vocabulary may lie, likeliest first."""
    tokenizer: PretrainedTokenizerSpec | None = None
    """The vocabulary that a job of ours names, the last of these, with the rules by which the job read its text."""


def collect(uri: str, wanted: tuple[str, ...]) -> Collected:
    """Read what is wanted and there.

    Args:
        uri: a prefix of TensorFlow's, a folder in the layout of Transformers or one above such folders named
            `discriminator` (or `encoder`) and `generator`, a job's directory, or one of its checkpoints.
        wanted: `discriminator`, `generator` or both.

    Raises:
        CheckpointError: it is none of these, or holds no network that is wanted.
        StorageError: a file cannot be read.
    """
    uri = storage.normalise(uri)
    prefix = uri.removesuffix(INDEX_SUFFIX)
    if storage.exists(prefix + INDEX_SUFFIX):
        return Collected("TensorFlow", read_tensorflow(prefix, wanted), (prefix.rpartition("/")[0],))
    if storage.exists(storage.join(uri, CONFIG_FILE)):
        found = read_transformers(uri)
        # All-Tokens MLM has both heads on one network; a bare backbone has none.
        heads = [name for name in NETWORKS if any(key.startswith(name) for key in found.state)] or ["discriminator"]
        network = next((name for name in wanted if name in heads), None)
        if network is None:
            raise CheckpointError(f"{uri} must hold a {wanted[0]}, got a {heads[0]}")
        return Collected("Transformers", {network: found}, (uri,))
    folders = {name: storage.join(uri, name) for network in wanted for name in EXPORTED_AS[network]}
    networks = {
        name: read_transformers(folder)
        for name, folder in folders.items()
        if storage.exists(storage.join(folder, CONFIG_FILE))
    }
    if networks:
        return Collected("Transformers", networks, tuple(folders[name] for name in networks))
    if is_ours(uri):
        return _collect_ours(uri, wanted)
    raise CheckpointError(
        f"{uri} must be the prefix of a TensorFlow checkpoint (what stands before .index), a folder with a "
        "config.json, or a job's directory or checkpoint, got none of these"
    )


def _collect_ours(uri: str, wanted: tuple[str, ...]) -> Collected:
    found = read_ours(uri)
    if found.spec is None:
        raise CheckpointError(f"{found.uri} must lie in its job's directory, whose spec.json tells the sizes")
    networks = networks_to_fill(found.spec, found.vocab_size)
    try:
        networks.load_state_dict(found.state)
    except RuntimeError as error:
        raise CheckpointError(f"{found.uri} must fit the spec beside it: {str(error)[:500]}") from error
    exported = exported_state_dicts(networks)
    names = [name for network in wanted for name in EXPORTED_AS[network] if name in exported]
    if not names:
        raise CheckpointError(f"{found.uri} must hold a {wanted[0]}, got {' and '.join(exported)}")
    vocabularies = [storage.join(found.job_uri, "exports", next(iter(exported)))]
    tokenizer = found.spec.tokenizer if isinstance(found.spec.tokenizer, PretrainedTokenizerSpec) else None
    # A spec that lies beside weights may be anybody's: where reading is restricted it does not say what else is read.
    if tokenizer is not None and web_guard.current() is None:
        vocabularies.append(tokenizer.uri)
    weights = {name: NetworkWeights(found.uri, *exported[name]) for name in names}
    return Collected("our checkpoint", weights, tuple(vocabularies), tokenizer)
