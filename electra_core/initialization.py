"""How weights start: as in the original, from an explicit generator of random numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

SINUSOID_SCALE = 0.1
"""Height of the sinusoids a position table may start from: about that of the other embeddings of a tiny network."""


@torch.no_grad()
def truncated_normal_(weight: Tensor, standard_deviation: float, rng: torch.Generator) -> Tensor:
    """Normal, cut at two standard deviations as TensorFlow's truncated normal is (so 12 % narrower than it says)."""
    bound = 2 * standard_deviation
    return nn.init.trunc_normal_(weight, 0.0, standard_deviation, -bound, bound, generator=rng)


@torch.no_grad()
def glorot_uniform_(weight: Tensor, rng: torch.Generator) -> Tensor:
    """Glorot-uniform: TensorFlow's default, which G has wherever it names no initialiser."""
    return nn.init.xavier_uniform_(weight, generator=rng)


@torch.no_grad()
def sinusoidal_(weight: Tensor) -> Tensor:
    """float[positions, width] set to `SINUSOID_SCALE` times the sinusoids of Vaswani et al. 2017, section 3.5."""
    num_positions, width = weight.shape
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    weight[:, 0::2] = (SINUSOID_SCALE * torch.sin(position * frequency)).to(weight)
    weight[:, 1::2] = (SINUSOID_SCALE * torch.cos(position * frequency[: width // 2])).to(weight)
    return weight


def truncated_normal_linear(
    in_features: int, out_features: int, standard_deviation: float, rng: torch.Generator
) -> nn.Linear:
    """A linear layer with truncated-normal weights and zero bias."""
    linear = _empty_linear(in_features, out_features)
    truncated_normal_(linear.weight, standard_deviation, rng)
    return linear


def glorot_linear(in_features: int, out_features: int, rng: torch.Generator) -> nn.Linear:
    """A linear layer with Glorot-uniform weights and zero bias."""
    linear = _empty_linear(in_features, out_features)
    glorot_uniform_(linear.weight, rng)
    return linear


def _empty_linear(in_features: int, out_features: int) -> nn.Linear:
    # Built without storage first: nn.Linear's own start would draw from the global random state.
    linear = nn.Linear(in_features, out_features, device="meta").to_empty(device="cpu")
    nn.init.zeros_(linear.bias)
    return linear
