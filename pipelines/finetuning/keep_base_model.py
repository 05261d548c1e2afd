"""From what a spec names as its model to a checked copy in the job's directory, before any data is read."""

from __future__ import annotations

import hashlib

import safetensors.torch
import torch

from electra_core.config import EncoderConfig, HeadConfig
from electra_core.conversion.finetuned import pretrained_backbone
from electra_core.finetuning.network import ElectraForFinetuning
from pipelines import storage
from pipelines.errors import CheckpointError
from pipelines.finetuning.base_model import WEIGHTS_FILE, BaseModel
from pipelines.specs.finetune import ModelFiles, ModelSource
from pipelines.storage.artifacts import MANIFEST_FILE, SpecialTokenIds
from pipelines.tokenizer import save_tokenizer, special_ids
from pipelines.weights.find_network import FoundNetwork, find_network

FOLDER = "base"
_BACKBONE = "electra."


def keep_base_model(source: ModelSource, job_uri: str, tracking_uri: str) -> BaseModel:
    """Find, check and copy the network a spec names; a complete copy is returned as it is.

    Raises:
        CheckpointError: it is absent or damaged, or no Electra network.
        CorpusError: there is no vocabulary that fits it.
        RecordError: MLflow has no such model, or does not answer.
        StorageError: a file cannot be read or written.
    """
    uri = storage.join(job_uri, FOLDER)
    manifest_uri = storage.join(uri, MANIFEST_FILE)
    if not storage.exists(manifest_uri):
        # A registered model is one network, whichever; beside files there may be two.
        wanted = (source.network,) if isinstance(source, ModelFiles) else ("discriminator", "generator")
        _keep(find_network(source, wanted, tracking_uri), uri)
    manifest = storage.read_json(manifest_uri)
    start = "-without-pretraining" if source.without_pretraining else ""
    return BaseModel(
        uri=uri,
        sha256=manifest["sha256"] + start,
        encoder=EncoderConfig.model_validate(manifest["encoder"]),
        special=SpecialTokenIds(*manifest["special"]),
        origin=manifest["origin"],
        without_pretraining=source.without_pretraining,
        longest_row=manifest.get("longest_row"),
    )


def _keep(found: FoundNetwork, uri: str) -> None:
    weights, origin = found.weights, found.origin
    # Whatever is wrong with the weights is said now, before any data is read.
    trial = ElectraForFinetuning(weights.sizes, _any_head(), torch.Generator().manual_seed(0))
    try:
        converted = pretrained_backbone(trial, weights.state)
    except ValueError as error:
        raise CheckpointError(f"{origin}: {error}") from error
    if converted.missing:
        raise CheckpointError(f"{origin} must hold every weight of its encoder, got no {converted.missing[0]}")
    backbone = {name: tensor.contiguous() for name, tensor in weights.state.items() if name.startswith(_BACKBONE)}
    data = safetensors.torch.save(backbone)
    storage.write_bytes(storage.join(uri, WEIGHTS_FILE), data)
    save_tokenizer(found.tokenizer, uri)
    manifest = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "encoder": weights.sizes.model_dump(mode="json"),
        "special": list(special_ids(found.tokenizer)),
        "origin": origin,
        "longest_row": found.longest_row,
    }
    storage.write_json(storage.join(uri, MANIFEST_FILE), manifest)


def _any_head() -> HeadConfig:
    return HeadConfig(task="regression")
