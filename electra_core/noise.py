"""Generators that are no networks: tokens drawn evenly, or as often as the corpus has them (Clark et al. 2020, 3.4).

V vocab_size, M positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from electra_core.batches import SpecialTokens


def noise_weights(vocab_size: int, special: SpecialTokens, unigram_counts: Tensor | None = None) -> Tensor:
    """How often each id is to be drawn, float64[V], not normalised; special tokens never are.

    Args:
        vocab_size: V.
        special: ids that stand for no text.
        unigram_counts: int64[V], occurrences in the corpus; None draws evenly.

    Raises:
        ValueError: the counts are not V of them.
    """
    if unigram_counts is not None and unigram_counts.shape != (vocab_size,):
        raise ValueError(f"unigram_counts must have shape ({vocab_size},), got {tuple(unigram_counts.shape)}")
    weights = torch.ones(vocab_size, dtype=torch.float64) if unigram_counts is None else unigram_counts.double()
    for special_id in (special.pad_id, special.unk_id, special.cls_id, special.sep_id, special.mask_id):
        weights[special_id] = 0.0
    return weights


class NoiseGenerator(nn.Module):
    """Draws ids from one fixed distribution. Its numbers are buffers made from the corpus; no checkpoint holds them."""

    def __init__(self, weights: Tensor) -> None:
        """Keep a copy of float64[V] weights.

        Raises:
            ValueError: a weight is negative or not finite, or fewer than two are above 0.
        """
        super().__init__()
        weights = weights.detach().double()
        if not bool(torch.isfinite(weights).all() & (weights >= 0).all()) or int((weights > 0).sum()) < 2:
            raise ValueError("noise weights must be finite, not negative, and at least two of them above 0")
        # Whole tables in float64: adding up 10⁵ counts of 10⁹ stays exact.
        self.register_buffer("cumulative", weights.cumsum(0), persistent=False)
        self.register_buffer("weights", weights.clone(), persistent=False)
        self.cumulative: Tensor
        self.weights: Tensor

    @torch.no_grad()
    def sample(self, uniform_M: Tensor, disallowed_ids: Tensor | None = None) -> Tensor:
        """Invert the cumulative distribution at float32[M] numbers inside (0, 1); int64[M] ids.

        Args:
            uniform_M: one number per draw.
            disallowed_ids: int64[M] that must not be drawn; the rest keep their proportions. None allows all.
        """
        total = self.cumulative[-1]
        target = uniform_M.double()
        if disallowed_ids is None:
            target = target * total
        else:
            # As if the disallowed id's stretch were cut out of the line, and the line closed.
            gap = self.weights[disallowed_ids]
            target = target * (total - gap)
            target = torch.where(target >= self.cumulative[disallowed_ids] - gap, target + gap, target)
        ids = torch.searchsorted(self.cumulative, target, right=True)
        return ids.clamp_(max=self.cumulative.shape[0] - 1)
