"""Replaced-token detection with a generator trained by masked language modelling (Clark et al. 2020, section 2).

B rows, L positions, N masked positions per row, M = B · N, V padded_vocab_size.
"""

# ruff: noqa: N806 - the capitals at the end of a name are its shape.

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.objectives.sums import ObjectiveSums
from electra_core.randomness import Draws
from electra_core.sampling import sample, sampling_weights

if TYPE_CHECKING:
    from electra_core.pretraining import ElectraForPretraining


def electra(
    networks: ElectraForPretraining, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> ObjectiveSums:
    """Generator, sampling, discriminator.

    Args:
        networks: both networks.
        batch: B rows with N masked positions each.
        draws: random numbers of this step; only its seed and step are used, the rows are the batch's.
        config: temperature and `disallow_correct`; λ is applied by `ObjectiveSums.total`.
    """
    draws = draws.for_rows(batch.rows)
    attention_mask = None if batch.is_packed else batch.attention_mask
    weights_M = batch.masked_weights.flatten()

    # Generator: logits at the masked positions only.
    hidden_BLH = networks.generator_hidden(batch.generator_input_ids, attention_mask, batch.token_type_ids, draws)
    # Losses and sampling are float32 whatever autocast does.
    logits_MV = networks.masked_logits(hidden_BLH, batch.masked_positions).float()
    original_BN = batch.original_ids.gather(1, batch.masked_positions)
    original_M = original_BN.flatten()
    generator_loss = (F.cross_entropy(logits_MV, original_M, reduction="none") * weights_M).sum()

    # Corruption: samples without gradient, put into the *unmasked* input. Filler keeps its token.
    disallowed = original_M if config.disallow_correct else None
    uniform_M = draws.uniform("sampling", batch.masked_positions.shape[1]).flatten()
    weights_MV = sampling_weights(logits_MV.detach(), config.temperature, disallowed)
    sampled_BN = sample(weights_MV, uniform_M).view_as(original_BN)
    sampled_BN = torch.where(batch.masked_weights > 0, sampled_BN, original_BN)
    corrupted_ids = batch.original_ids.scatter(1, batch.masked_positions, sampled_BN)
    # A lucky generator's tokens count as real: they are the original text.
    is_replaced = corrupted_ids != batch.original_ids

    # Discriminator: every real position, [CLS] and [SEP] included.
    logits_BL = networks.discriminator_logits(corrupted_ids, attention_mask, batch.token_type_ids, draws)
    discriminator_loss = F.binary_cross_entropy_with_logits(
        logits_BL,
        is_replaced.float(),
        weight=None if attention_mask is None else attention_mask.float(),
        reduction="sum",
    )

    with torch.no_grad():
        is_real = batch.attention_mask
        called_replaced = (logits_BL > 0) & is_real
        num_real = batch.num_real
        num_replaced = _count(is_replaced)
        true_positives = _count(called_replaced & is_replaced)
        false_positives = _count(called_replaced) - true_positives
        return ObjectiveSums(
            generator_loss=generator_loss,
            discriminator_loss=discriminator_loss,
            num_masked=batch.num_masked,
            num_real=num_real,
            generator_correct=((logits_MV.argmax(dim=-1) == original_M) * weights_M).sum(),
            num_replaced=num_replaced,
            discriminator_true_positives=true_positives,
            discriminator_false_positives=false_positives,
            discriminator_correct=num_real - num_replaced + true_positives - false_positives,
        )


def _count(flags: Tensor) -> Tensor:
    return flags.sum(dtype=torch.float32)
