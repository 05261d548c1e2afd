"""Exports in the Transformers layout: one folder a network, with its tokenizer and a model card."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from electra_core.batches import SpecialTokens
from electra_core.conversion.to_transformers import exported_state_dicts, transformers_config
from electra_core.pretraining import ElectraForPretraining
from pipelines import storage
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.tokenizer import CONFIG_FILE, TOKENIZER_FILE, VOCAB_FILE

ARCHITECTURES = {
    "discriminator": "ElectraForPreTraining",
    "encoder": "ElectraForMaskedLM",
    "generator": "ElectraForMaskedLM",
}
"""Transformers' class for each network."""


def export_networks(
    networks: ElectraForPretraining, corpus: PreparedCorpus, cards: dict[str, str], folder: Path
) -> dict[str, Path]:
    """Write the networks of the objective that are worth keeping under `folder`.

    Args:
        networks: trained weights; vocabulary padding is sliced off.
        corpus: names the tokenizer whose files are copied beside the weights.
        cards: text of each network's README.md.
        folder: gets a folder per network: config.json, model.safetensors, tokenizer files, README.md.

    Returns:
        Network to its folder.
    """
    special = SpecialTokens(*corpus.special)
    folders = {}
    for network, (state, encoder) in exported_state_dicts(networks).items():
        target = folder / network
        target.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
        save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
        config = transformers_config(encoder, special, ARCHITECTURES[network])
        (target / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (target / "README.md").write_text(cards[network], encoding="utf-8")
        copy_tokenizer(corpus.tokenizer_uri, target, encoder.max_position_embeddings)
        folders[network] = target
    return folders


def copy_tokenizer(tokenizer_uri: str, folder: Path, max_length: int) -> None:
    """Copy tokenizer.json, tokenizer_config.json and, where the tokenizer has one, vocab.txt into a local folder.

    Args:
        tokenizer_uri: folder with the files.
        folder: gets them.
        max_length: tokens of a row that the network was made for. Transformers cuts where this says, and nowhere
            without it: longer texts then end in an error of its embeddings.

    Raises:
        StorageError: a file cannot be read.
    """
    for name in (TOKENIZER_FILE, VOCAB_FILE):
        uri = storage.join(tokenizer_uri, name)
        if name != VOCAB_FILE or storage.exists(uri):
            (folder / name).write_bytes(storage.read_bytes(uri))
    config = storage.read_json(storage.join(tokenizer_uri, CONFIG_FILE))
    storage.write_json(str(folder / CONFIG_FILE), config | {"model_max_length": max_length})
