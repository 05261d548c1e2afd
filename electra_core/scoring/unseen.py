"""Both networks on text they have not seen: the losses they were pretrained with, as sums.

B rows, L positions, N masked positions per row, M = B · N.
"""

from __future__ import annotations

import torch
from torch import Tensor

from electra_core.batches import MaskedBatch, TokenBatch
from electra_core.heads import gather_positions
from electra_core.masked_prediction import predict_masked
from electra_core.objectives.corruption import put_in
from electra_core.objectives.detection import detection_loss, detection_statistics
from electra_core.objectives.sums import Detection, Loss, ObjectiveSums
from electra_core.randomness import Draws
from electra_core.scoring.networks import Discriminator, MaskedLanguageModel


@torch.no_grad()
def score_unseen(
    generator: MaskedLanguageModel, discriminator: Discriminator | None, batch: MaskedBatch, draws: Draws
) -> ObjectiveSums:
    """What `objectives.electra` gives for two networks that need not have been pretrained together.

    Args:
        generator: fills the masked positions, and writes what the discriminator reads. In eval mode.
        discriminator: judges every real token; None where there is none. In eval mode, with the same vocabulary.
        batch: rows with masked positions.
        draws: behind the samples; only its seed and step are used, the rows are the batch's.

    Returns:
        `metrics.figures` knows what the sums mean.
    """
    draws = draws.for_rows(batch.rows)
    mask = None if batch.is_packed else batch.attention_mask
    original_BN = batch.original_ids.gather(1, batch.masked_positions)
    weights_M = batch.masked_weights.flatten()
    hidden_BLH = generator.hidden(batch.generator_input_ids, mask, batch.token_type_ids)
    prediction = predict_masked(
        generator.head,
        generator.embeddings.word,
        gather_positions(hidden_BLH, batch.masked_positions),
        original_BN.flatten(),
        weights_M,
        draws.uniform("sampling", batch.masked_positions.shape[1]).flatten(),
    )
    losses = {"generator_loss": Loss(prediction.loss, batch.num_masked, "num_masked")}
    statistics: dict[str, Tensor] = {
        "generator_correct": (prediction.is_correct * weights_M).sum(),
        "generator_correct_positions": batch.num_masked,
    }
    if discriminator is None:
        return ObjectiveSums(losses, statistics)
    corrupted_ids = put_in(batch, prediction.samples.view_as(original_BN))
    is_replaced = corrupted_ids != batch.original_ids
    logits_BL = discriminator(
        TokenBatch(corrupted_ids, batch.attention_mask, batch.rows, batch.token_type_ids, batch.is_packed)
    )
    weights_BL = None if batch.is_packed else batch.attention_mask.float()
    losses["discriminator_loss"] = detection_loss(
        logits_BL, is_replaced, weights_BL, batch.num_real, "num_real", weight=1.0
    )
    detection = Detection(corrupted_ids, is_replaced, logits_BL, batch.attention_mask)
    return ObjectiveSums(losses, statistics | detection_statistics(detection), detection)
