"""The first half of replaced-token detection: the generator fills masked positions, and the samples go in.

B rows, L positions, N masked positions per row, M = B · N, V padded_vocab_size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.masked_prediction import predict_masked
from electra_core.objectives.sums import ObjectiveSums
from electra_core.randomness import Draws

if TYPE_CHECKING:
    from electra_core.pretraining import ElectraForPretraining


@dataclass(frozen=True, slots=True)
class Corruption:
    """A batch with the generator's samples in it."""

    batch: MaskedBatch
    corrupted_ids: Tensor
    """int64[B, L]; the *unmasked* input with the samples at the masked positions."""
    is_replaced: Tensor
    """bool[B, L]; where the sample differs from the original. A lucky generator's tokens count as original."""
    original_masked_ids: Tensor
    """int64[B, N]; the tokens that stood at `batch.masked_positions`."""
    generator_loss: Tensor
    """Cross-entropy summed over masked positions, nats; the only part that carries gradient."""
    generator_correct: Tensor
    """Masked positions where the generator's most probable token is the original, 0-dim float32."""

    def sums(self, logits_BL: Tensor) -> ObjectiveSums:
        """Both losses and the statistics, given the discriminator's logits float32[B, L] of P(replaced)."""
        batch, is_replaced = self.batch, self.is_replaced
        discriminator_loss = F.binary_cross_entropy_with_logits(
            logits_BL,
            is_replaced.float(),
            weight=None if batch.is_packed else batch.attention_mask.float(),
            reduction="sum",
        )
        with torch.no_grad():
            called_replaced = (logits_BL > 0) & batch.attention_mask
            num_real, num_replaced = batch.num_real, _count(is_replaced)
            true_positives = _count(called_replaced & is_replaced)
            false_positives = _count(called_replaced) - true_positives
            return ObjectiveSums(
                generator_loss=self.generator_loss,
                discriminator_loss=discriminator_loss,
                num_masked=batch.num_masked,
                num_real=num_real,
                generator_correct=self.generator_correct,
                num_replaced=num_replaced,
                discriminator_true_positives=true_positives,
                discriminator_false_positives=false_positives,
                discriminator_correct=num_real - num_replaced + true_positives - false_positives,
            )


def corrupt(networks: ElectraForPretraining, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig) -> Corruption:
    """Run the generator and put one sample per masked position into the original rows.

    Args:
        networks: of which the generator runs.
        batch: B rows with N masked positions each.
        draws: random numbers of this step; only its seed and step are used, the rows are the batch's.
        config: temperature and `disallow_correct`.
    """
    draws = draws.for_rows(batch.rows)
    attention_mask = None if batch.is_packed else batch.attention_mask
    weights_M = batch.masked_weights.flatten()

    # Logits at the masked positions only.
    hidden_BLH = networks.generator_hidden(batch.generator_input_ids, attention_mask, batch.token_type_ids, draws)
    original_BN = batch.original_ids.gather(1, batch.masked_positions)
    original_M = original_BN.flatten()
    prediction = predict_masked(
        networks.generator_head,
        networks.embeddings.word,
        networks.masked_hidden(hidden_BLH, batch.masked_positions),
        original_M,
        weights_M,
        draws.uniform("sampling", batch.masked_positions.shape[1]).flatten(),
        config.temperature,
        original_M if config.disallow_correct else None,
    )

    # No gradient passes a sample. Filler keeps its token.
    sampled_BN = torch.where(batch.masked_weights > 0, prediction.samples.view_as(original_BN), original_BN)
    corrupted_ids = batch.original_ids.scatter(1, batch.masked_positions, sampled_BN)
    return Corruption(
        batch=batch,
        corrupted_ids=corrupted_ids,
        is_replaced=corrupted_ids != batch.original_ids,
        original_masked_ids=original_BN,
        generator_loss=prediction.loss,
        generator_correct=(prediction.is_correct * weights_M).sum(),
    )


def _count(flags: Tensor) -> Tensor:
    return flags.sum(dtype=torch.float32)
