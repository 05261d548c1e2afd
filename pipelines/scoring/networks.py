"""The networks of an evaluation job: checked copies in its directory, and what is computed with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import safetensors.torch

from electra_core.batches import SpecialTokens
from electra_core.config import EncoderConfig
from electra_core.conversion.single import single_network
from electra_core.scoring.networks import Discriminator, MaskedLanguageModel
from pipelines import storage
from pipelines.errors import CheckpointError
from pipelines.specs.model_source import NetworkFiles, RegisteredNetwork
from pipelines.storage.artifacts import MANIFEST_FILE
from pipelines.tokenizer import TOKENIZER_FILE, save_tokenizer, special_ids
from pipelines.weights.find_network import find_network

FOLDER = "networks"
WEIGHTS_FILE = "weights.safetensors"
_CLASSES: Mapping[str, type[Discriminator | MaskedLanguageModel]] = {
    "discriminator": Discriminator,
    "generator": MaskedLanguageModel,
}
_HEADS = {"discriminator": "that of ElectraForPreTraining", "generator": "that of ElectraForMaskedLM"}


@dataclass(frozen=True)
class KeptNetwork:
    """A complete copy."""

    kind: str
    """`discriminator` or `generator`."""
    uri: str
    """Its folder: weights in our names, and the tokenizer in the layout of Transformers."""
    sha256: str
    """Of the weights."""
    tokenizer_sha256: str
    vocabulary_sha256: str
    """Of its entries and their ids, whatever the file looks like."""
    encoder: EncoderConfig
    special: SpecialTokens
    origin: str
    """Where it came from, for people."""

    def load(self) -> Discriminator | MaskedLanguageModel:
        """The network, in eval mode.

        Raises:
            CheckpointError: the file is not the one the digest belongs to.
            StorageError: it cannot be read.
        """
        uri = storage.join(self.uri, WEIGHTS_FILE)
        data = storage.read_bytes(uri)
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise CheckpointError(f"{uri} must have sha256 {self.sha256}, got {digest}")
        network = _CLASSES[self.kind](self.encoder)
        network.load_state_dict(safetensors.torch.load(data))
        return network.eval()


def keep_network(kind: str, source: RegisteredNetwork | NetworkFiles, job_uri: str, tracking_uri: str) -> KeptNetwork:
    """Find, check and copy a network; a complete copy is returned as it is.

    Args:
        kind: `discriminator` or `generator`.
        source: where it is.
        job_uri: gets a folder of that name.
        tracking_uri: MLflow's, for models of its registry.

    Raises:
        CheckpointError: it is absent or damaged, or lacks a weight or its head.
        CorpusError: there is no vocabulary that fits it.
        RecordError: MLflow has no such model, or does not answer.
        StorageError: a file cannot be read or written.
    """
    uri = storage.join(job_uri, FOLDER, kind)
    manifest_uri = storage.join(uri, MANIFEST_FILE)
    if not storage.exists(manifest_uri):
        _keep(kind, source, uri, tracking_uri)
    manifest = storage.read_json(manifest_uri)
    return KeptNetwork(
        kind=kind,
        uri=uri,
        sha256=manifest["sha256"],
        tokenizer_sha256=manifest["tokenizer_sha256"],
        vocabulary_sha256=manifest["vocabulary_sha256"],
        encoder=EncoderConfig.model_validate(manifest["encoder"]),
        special=SpecialTokens(*manifest["special"]),
        origin=manifest["origin"],
    )


def _keep(kind: str, source: RegisteredNetwork | NetworkFiles, uri: str, tracking_uri: str) -> None:
    wanted = (kind,) if isinstance(source, NetworkFiles) else ("discriminator", "generator")
    found = find_network(source, wanted, tracking_uri, field=kind)
    sizes, origin = found.weights.sizes, found.origin
    network = _CLASSES[kind](sizes)
    try:
        converted = single_network(network, found.weights.state)
    except ValueError as error:
        raise CheckpointError(f"{origin}: {error}") from error
    if converted.missing:
        raise CheckpointError(
            f"{kind} must hold every weight of its encoder and of its head, {_HEADS[kind]}; "
            f"{origin} has no {converted.missing[0]}"
        )
    network.load_state_dict(converted.state)
    data = safetensors.torch.save(network.state_dict())
    storage.write_bytes(storage.join(uri, WEIGHTS_FILE), data)
    save_tokenizer(found.tokenizer, uri)
    entries = sorted(found.tokenizer.get_vocab(with_added_tokens=True).items())
    manifest = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "tokenizer_sha256": hashlib.sha256(storage.read_bytes(storage.join(uri, TOKENIZER_FILE))).hexdigest(),
        "vocabulary_sha256": hashlib.sha256(json.dumps(entries).encode()).hexdigest(),
        "encoder": sizes.model_dump(mode="json"),
        "special": list(special_ids(found.tokenizer)),
        "origin": origin,
    }
    storage.write_json(storage.join(uri, MANIFEST_FILE), manifest)
