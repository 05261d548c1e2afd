"""Scoring the main network as a detector of replaced tokens.

B rows, L positions, N masked positions per row.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_core.batches import MaskedBatch
from electra_core.objectives.sums import Detection, Loss


def detection_loss(
    logits_BL: Tensor,
    is_replaced: Tensor,
    weights_BL: Tensor | None,
    positions: Tensor,
    per: Literal["num_masked", "num_real"],
    weight: float,
) -> Loss:
    """Binary cross-entropy of P(replaced), summed over the positions of weight 1.

    Args:
        logits_BL: float32[B, L]; positive means "replaced".
        is_replaced: bool[B, L].
        weights_BL: float32[B, L], 1 or 0; None is 1 everywhere.
        positions: how many have weight 1, 0-dim float32.
        per: count of the global batch that this is divided by.
        weight: λ.
    """
    loss = F.binary_cross_entropy_with_logits(logits_BL, is_replaced.float(), weight=weights_BL, reduction="sum")
    return Loss(loss, positions, per, weight)


@torch.no_grad()
def detection_statistics(detection: Detection) -> dict[str, Tensor]:
    """Counts over the positions that are scored, each 0-dim float32.

    Returns:
        num_scored: positions the detector is asked about.
        num_replaced: of these, replaced ones.
        discriminator_true_positives: replaced positions called replaced (logit > 0).
        discriminator_false_positives: original positions called replaced.
        discriminator_correct: positions called rightly.
    """
    is_scored = detection.is_scored
    is_replaced = detection.is_replaced & is_scored
    called_replaced = (detection.logits > 0) & is_scored
    num_scored, num_replaced = _count(is_scored), _count(is_replaced)
    true_positives = _count(called_replaced & is_replaced)
    false_positives = _count(called_replaced) - true_positives
    return {
        "num_scored": num_scored,
        "num_replaced": num_replaced,
        "discriminator_true_positives": true_positives,
        "discriminator_false_positives": false_positives,
        "discriminator_correct": num_scored - num_replaced + true_positives - false_positives,
    }


def at_masked_positions(batch: MaskedBatch) -> Tensor:
    """float32[B, L]; 1 at masked positions."""
    return marked(batch, batch.masked_positions, batch.masked_weights)


def marked(batch: MaskedBatch, positions: Tensor, weights: Tensor) -> Tensor:
    """float32[B, L] with float32[B, N] weights put at int64[B, N] positions, 0 elsewhere."""
    everywhere = torch.zeros(batch.original_ids.shape, dtype=torch.float32, device=weights.device)
    return everywhere.scatter(1, positions, weights)


def _count(flags: Tensor) -> Tensor:
    return flags.sum(dtype=torch.float32)
