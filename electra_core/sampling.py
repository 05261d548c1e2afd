"""Drawing one token per masked position from the generator's distribution.

M positions, V padded vocabulary, a multiple of the block width.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 64
"""Ids per block of the two-level search; the padded vocabulary is a multiple of it."""


@torch.no_grad()
def sampling_weights(logits_MV: Tensor, temperature: float, disallowed_ids: Tensor | None) -> Tensor:
    """softmax(logits / temperature) in float32, with the disallowed id of each row left out.

    Never in bf16: its 256 levels between powers of two make ties and a coarse distribution, and training goes wrong
    without an error.

    Args:
        logits_MV: float[M, V].
        temperature: above 1 flattens, below 1 sharpens.
        disallowed_ids: int64[M], or None.
    """
    logits_MV = logits_MV.float()
    if temperature != 1.0:
        logits_MV = logits_MV / temperature
    if disallowed_ids is not None:
        logits_MV = logits_MV.scatter(1, disallowed_ids[:, None], float("-inf"))
    return torch.softmax(logits_MV, dim=-1)


@torch.no_grad()
def sample(weights_MV: Tensor, uniform_M: Tensor) -> Tensor:
    """Invert the cumulative distribution at one uniform number per row.

    G takes argmax(logits + Gumbel), which costs a random number per id; this costs one per row. The search has two
    levels, the block and then the id inside it: only one pass over all ids, no cumulative sum over all of them, and
    less rounding than in a long running sum.

    Args:
        weights_MV: float32[M, V], not negative, not all 0 in a row; they need not sum to 1.
        uniform_M: float32[M], inside (0, 1).

    Returns:
        int64[M]; never an id of weight 0, whatever the rounding.
    """
    blocks = weights_MV.view(weights_MV.shape[0], -1, _BLOCK)
    block_weights = blocks.sum(dim=-1)
    cumulative = block_weights.cumsum(dim=-1)
    target = uniform_M[:, None] * cumulative[:, -1:]
    block = (cumulative <= target).sum(dim=-1, keepdim=True).clamp_(max=cumulative.shape[1] - 1)
    # Rounding can leave the target past the last weight, or (in a parallel sum) in a block of weight 0: then the
    # heaviest stands in.
    block = torch.where(block_weights.gather(1, block) > 0, block, block_weights.argmax(dim=-1, keepdim=True))

    inside = blocks.gather(1, block[:, :, None].expand(-1, 1, _BLOCK)).squeeze(1)
    before = cumulative.gather(1, block) - block_weights.gather(1, block)
    offset = (inside.cumsum(dim=-1) <= target - before).sum(dim=-1, keepdim=True).clamp_(max=_BLOCK - 1)
    offset = torch.where(inside.gather(1, offset) > 0, offset, inside.argmax(dim=-1, keepdim=True))
    return (block * _BLOCK + offset).squeeze(1)
