"""Sizes of a network read off its tensors, as far as tensors tell them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from electra_core.config import EncoderConfig

HEAD_SIZE = 64
"""Width of a head in every released model; tensors do not tell how many heads share them."""


def encoder_config(
    state: Mapping[str, Tensor], num_attention_heads: int | None = None, layer_norm_eps: float = 1e-12
) -> EncoderConfig:
    """Sizes of a state dict in the names of Transformers.

    Args:
        state: with `electra.` before the backbone's names; see `from_transformers.clean_names`.
        num_attention_heads: None is one for each 64 of the width, and at least one, as in the original.
        layer_norm_eps: the original's where it is not known.

    Raises:
        ValueError: a tensor that tells a size is absent or no matrix, or the sizes are impossible.
    """
    vocab_size, embedding_size = _matrix(state, "electra.embeddings.word_embeddings.weight")
    intermediate_size, hidden_size = _matrix(state, "electra.encoder.layer.0.intermediate.dense.weight")
    layers = {int(name.split(".")[3]) for name in state if name.startswith("electra.encoder.layer.")}
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        embedding_size=embedding_size,
        num_hidden_layers=1 + max(layers),
        num_attention_heads=num_attention_heads or max(1, hidden_size // HEAD_SIZE),
        intermediate_size=intermediate_size,
        max_position_embeddings=_matrix(state, "electra.embeddings.position_embeddings.weight")[0],
        type_vocab_size=_matrix(state, "electra.embeddings.token_type_embeddings.weight")[0],
        layer_norm_eps=layer_norm_eps,
    )


def used_rows(word_embeddings: Tensor) -> int:
    """Size of the vocabulary behind a padded table of ours: its last rows are zero from the first step to the last.

    Args:
        word_embeddings: float[padded_vocab_size, embedding_size].
    """
    used = word_embeddings.ne(0).any(dim=1).nonzero()
    return int(used[-1]) + 1 if len(used) else 0


def _matrix(state: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    tensor = state.get(name)
    if tensor is None or tensor.ndim != 2:
        raise ValueError(f"{name} must be a matrix, got {'none' if tensor is None else tuple(tensor.shape)}")
    return int(tensor.shape[0]), int(tensor.shape[1])
