"""What sits on top of each network while pretraining.

B rows, L positions, M positions gathered from all rows, H hidden_size, E embedding_size, V padded_vocab_size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_core.config import EncoderConfig
from electra_core.initialization import glorot_linear, truncated_normal_linear
from electra_core.kernels import compute_dtype, native_kernels
from electra_core.native.functions import LinearGeluFunction

IMPOSSIBLE_LOGIT = -1e30
"""Logit of an id past the vocabulary: its softmax is exactly 0. Finite, and finite in bf16, so that no NaN can come of
it (float32's own minimum would round to -∞ there)."""


class MaskedLanguageModelHead(nn.Module):
    """dense(H → E) → GELU → LayerNorm → the word embeddings, tied, + bias. Works on gathered positions only."""

    def __init__(self, config: EncoderConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.dense = truncated_normal_linear(config.hidden_size, config.embedding_size, config.initializer_range, rng)
        self.layer_norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.padded_vocab_size))
        self.vocab_size = config.vocab_size
        is_padding = torch.arange(config.padded_vocab_size) >= config.vocab_size
        self.register_buffer("is_padding", is_padding, persistent=False)
        self.is_padding: Tensor

    def forward(self, hidden_MH: Tensor, word_embeddings_VE: Tensor) -> Tensor:
        """float[M, H] to logits float[M, V]. The matrix is an argument: no second reference to it can come untied."""
        return F.linear(self.transform(hidden_MH), word_embeddings_VE, self.padded_bias())

    def transform(self, hidden_MH: Tensor) -> Tensor:
        """float[M, H] to float[M, E], whose products with the word embeddings are the logits."""
        transformed_ME: Tensor = self.layer_norm(linear_gelu(self.dense, hidden_MH))
        return transformed_ME

    def padded_bias(self) -> Tensor:
        """float[V], impossible at the ids past the vocabulary."""
        return self.bias.masked_fill(self.is_padding, IMPOSSIBLE_LOGIT)


class ReplacedTokenDetectionHead(nn.Module):
    """dense(H → H) → GELU → dense(1): the logit of P(replaced)."""

    def __init__(self, config: EncoderConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.dense = truncated_normal_linear(config.hidden_size, config.hidden_size, config.initializer_range, rng)
        self.prediction = glorot_linear(config.hidden_size, 1, rng)

    def forward(self, hidden_BLH: Tensor) -> Tensor:
        """float[B, L, H] to logits float[B, L]."""
        logits: Tensor = self.prediction(linear_gelu(self.dense, hidden_BLH))
        return logits.squeeze(-1)


def linear_gelu(dense: nn.Linear, x: Tensor) -> Tensor:
    """GELU(dense(x)), float[..., in] to float[..., out]."""
    native = native_kernels(x, dense.out_features)
    if native is None:
        return F.gelu(dense(x))
    rows = x.reshape(-1, x.shape[-1])
    activated: Tensor = LinearGeluFunction.apply(native, compute_dtype(x), rows, dense.weight, dense.bias)
    return activated.view(*x.shape[:-1], dense.out_features)


def gather_positions(values_BLH: Tensor, positions: Tensor) -> Tensor:
    """float[M, H] of float[B, L, H] at int64[B, N] positions."""
    rows, length, width = values_BLH.shape
    starts = torch.arange(0, rows * length, length, device=positions.device)[:, None]
    return values_BLH.reshape(rows * length, width).index_select(0, (positions + starts).flatten())
