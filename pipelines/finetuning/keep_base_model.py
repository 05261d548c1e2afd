"""From what a spec names as its model to a checked copy in the job's directory, before any data is read."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from pathlib import Path

import safetensors.torch
import torch

from electra_core.config import EncoderConfig, HeadConfig
from electra_core.conversion.finetuned import pretrained_backbone
from electra_core.finetuning.network import ElectraForFinetuning
from pipelines import storage
from pipelines.errors import CheckpointError, CorpusError
from pipelines.finetuning.base_model import WEIGHTS_FILE, BaseModel
from pipelines.specs.corpus import PretrainedTokenizerSpec
from pipelines.specs.finetune import ModelSource, RegisteredModel
from pipelines.storage.artifacts import MANIFEST_FILE, SpecialTokenIds
from pipelines.tokenizer import pretrained_file, read_pretrained, save_tokenizer, special_ids, vocab_size
from pipelines.weights.collect import collect

log = logging.getLogger(__name__)

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
        if isinstance(source, RegisteredModel):
            from pipelines.record.registry import download_transformers_model  # imports MLflow

            with tempfile.TemporaryDirectory() as scratch:
                files = download_transformers_model(tracking_uri, source.uri, Path(scratch))
                version = f"{source.name} version {files.version}"
                _keep(str(files.model), str(files.tokenizer), "discriminator", version, uri, is_any=True)
        else:
            _keep(source.uri, source.tokenizer_uri, source.network, source.uri, uri)
    manifest = storage.read_json(manifest_uri)
    start = "-without-pretraining" if source.without_pretraining else ""
    return BaseModel(
        uri=uri,
        sha256=manifest["sha256"] + start,
        encoder=EncoderConfig.model_validate(manifest["encoder"]),
        special=SpecialTokenIds(*manifest["special"]),
        origin=manifest["origin"],
        without_pretraining=source.without_pretraining,
    )


def _keep(
    model_uri: str, tokenizer_uri: str | None, network: str, origin: str, uri: str, *, is_any: bool = False
) -> None:
    found = collect(model_uri, ("discriminator", "generator") if is_any else (network,))
    weights = next(iter(found.networks.values()))
    tokenizer = read_pretrained(
        PretrainedTokenizerSpec(uri=tokenizer_uri or _vocabulary(found.vocabulary_uris, origin))
    )
    entries = vocab_size(tokenizer)
    if entries > weights.sizes.vocab_size:
        raise CheckpointError(
            f"the vocabulary of {origin} must have at most {weights.sizes.vocab_size} entries, got {entries}"
        )
    if not weights.is_complete:
        log.warning(
            "heads_are_guessed", extra={"uri": origin, "num_attention_heads": weights.sizes.num_attention_heads}
        )
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
    save_tokenizer(tokenizer, uri)
    manifest = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "encoder": weights.sizes.model_dump(mode="json"),
        "special": list(special_ids(tokenizer)),
        "origin": origin,
    }
    storage.write_json(storage.join(uri, MANIFEST_FILE), manifest)


def _any_head() -> HeadConfig:
    return HeadConfig(task="regression")


def _vocabulary(uris: tuple[str, ...], origin: str) -> str:
    for uri in uris:
        try:
            pretrained_file(uri)
        except storage.StorageError:
            continue
        return uri
    raise CorpusError(f"{origin} must have a vocabulary beside it, got none: name one under model.tokenizer_uri")
