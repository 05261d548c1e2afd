"""Networks of Transformers' own classes: tiny, of random weights, with a tokenizer of given tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from pipelines.tokenizer import bert_tokenizer, save_tokenizer

SIZES = {
    "embedding_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def write_network(
    folder: Path,
    architecture: str,
    tokens: Sequence[str],
    *,
    seed: int = 0,
    tokenizer: Path | None = None,
    **fields: Any,
) -> Path:
    """Write a network in the layout of Transformers; its tokenizer lies beside it, or in a folder of its own."""
    config = transformers.ElectraConfig(vocab_size=len(tokens), **{**SIZES, **fields})
    torch.manual_seed(seed)
    getattr(transformers, architecture)(config).save_pretrained(folder)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    save_tokenizer(bert_tokenizer(vocabulary, True, None), str(tokenizer or folder))
    return folder
