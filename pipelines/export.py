"""Exports in the Transformers layout: one folder a network, with its tokenizer and a model card."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from electra_core.batches import SpecialTokens
from electra_core.conversion.to_transformers import exported_state_dicts, transformers_config
from electra_core.pretraining import ElectraForPretraining
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.tokenizer import load_tokenizer, save_tokenizer

ARCHITECTURES = {
    "discriminator": "ElectraForPreTraining",
    "encoder": "ElectraForMaskedLM",
    "generator": "ElectraForMaskedLM",
}
"""Transformers' class for each network."""


def export_networks(
    networks: ElectraForPretraining, corpus: PreparedCorpus, cards: dict[str, str], folder: Path, longest_row: int
) -> dict[str, Path]:
    """Write the networks of the objective that are worth keeping under `folder`.

    Args:
        networks: trained weights; vocabulary padding is sliced off.
        corpus: names the tokenizer that is written beside the weights.
        cards: text of each network's README.md.
        folder: gets a folder per network: config.json, model.safetensors, tokenizer files, README.md.
        longest_row: tokens that the networks were trained to read, which the tokenizer names as `model_max_length`.

    Returns:
        Network to its folder.
    """
    special = SpecialTokens(*corpus.special)
    tokenizer = load_tokenizer(corpus.tokenizer_uri)
    folders = {}
    for network, (state, encoder) in exported_state_dicts(networks).items():
        target = folder / network
        target.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
        save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
        config = transformers_config(encoder, special, ARCHITECTURES[network])
        (target / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (target / "README.md").write_text(cards[network], encoding="utf-8")
        save_tokenizer(tokenizer, str(target), longest_row)
        folders[network] = target
    return folders
