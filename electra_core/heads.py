"""What sits on top of each network while pretraining.

B rows, L positions, M positions gathered from all rows, H hidden_size, E embedding_size, V padded_vocab_size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_core.config import EncoderConfig
from electra_core.initialization import glorot_linear, truncated_normal_linear

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
        is_padding = torch.arange(config.padded_vocab_size) >= config.vocab_size
        self.register_buffer("is_padding", is_padding, persistent=False)
        self.is_padding: Tensor

    def forward(self, hidden_MH: Tensor, word_embeddings_VE: Tensor) -> Tensor:
        """float[M, H] to logits float[M, V]. The matrix is an argument: no second reference to it can come untied."""
        transformed_ME = self.layer_norm(F.gelu(self.dense(hidden_MH)))
        bias_V = self.bias.masked_fill(self.is_padding, IMPOSSIBLE_LOGIT)
        return F.linear(transformed_ME, word_embeddings_VE, bias_V)


class ReplacedTokenDetectionHead(nn.Module):
    """dense(H → H) → GELU → dense(1): the logit of P(replaced)."""

    def __init__(self, config: EncoderConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.dense = truncated_normal_linear(config.hidden_size, config.hidden_size, config.initializer_range, rng)
        self.prediction = glorot_linear(config.hidden_size, 1, rng)

    def forward(self, hidden_BLH: Tensor) -> Tensor:
        """float[B, L, H] to logits float[B, L]."""
        logits: Tensor = self.prediction(F.gelu(self.dense(hidden_BLH)))
        return logits.squeeze(-1)


def gather_positions(hidden_BLH: Tensor, positions: Tensor) -> Tensor:
    """float[M, H] of float[B, L, H] at int64[B, N] positions."""
    rows, length, hidden = hidden_BLH.shape
    starts = torch.arange(0, rows * length, length, device=positions.device)[:, None]
    return hidden_BLH.reshape(rows * length, hidden).index_select(0, (positions + starts).flatten())
