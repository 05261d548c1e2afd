"""Tiny models of random weights, one for each head, in the layout of Transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from toy_network import write_network

WORDS = ["anna", "lives", "in", "oslo", "bert", "sees", "the", "sea", "who", "where", "un", "##seen", "##s", ".", "?"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
MAX_LENGTH = 24

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "ElectraForPreTraining": {},
    "ElectraForMaskedLM": {},
    "ElectraForSequenceClassification": {"id2label": {0: "neutral", 1: "good", 2: "bad"}},
    "ElectraForTokenClassification": {"id2label": {0: "O", 1: "NAME", 2: "PLACE"}},
    "ElectraForQuestionAnswering": {},
    "ElectraForMultipleChoice": {},
}


def model_folder(folder: Path, architecture: str, tokenizer: Path | None = None, **fields: Any) -> Path:
    """A model with its tokenizer beside it, or in a folder of its own."""
    sizes = {"embedding_size": 16, "max_position_embeddings": MAX_LENGTH, "initializer_range": 0.5}
    fields = {**sizes, **ARCHITECTURES[architecture], **fields}
    return write_network(folder, architecture, TOKENS, tokenizer=tokenizer, **fields)


@torch.no_grad()
def forward(folder: Path, *texts: Any, **options: Any) -> Any:
    """What Transformers itself says: its tokenizer, its class, nothing of ours."""
    architecture = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    network = getattr(transformers, architecture).from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt", **options)
    if architecture == "ElectraForMultipleChoice":
        tokens = {name: tensor[None] for name, tensor in tokens.items()}
    return network(**tokens)
