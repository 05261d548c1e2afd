"""Replaced-token detection (Clark et al. 2020, section 2), and the two ablations that ask fewer positions (3.4)."""

from __future__ import annotations

import torch
from torch import Tensor

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.networks import PretrainingNetworks
from electra_core.objectives.corruption import Corruption, corrupt
from electra_core.objectives.detection import at_masked_positions, detection_loss, detection_statistics, marked
from electra_core.objectives.sums import Detection, ObjectiveSums
from electra_core.randomness import Draws


def electra(networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig) -> ObjectiveSums:
    """MLM(generator) + λ · RTD over every real position, [CLS] and [SEP] included.

    Args:
        networks: both networks.
        batch: rows with masked positions.
        draws: random numbers of this step; only its seed and step are used, the rows are the batch's.
        config: λ, kind of generator, temperature and `disallow_correct`.
    """
    corruption = corrupt(networks, batch, draws, config)
    return detect(networks, corruption, draws, config.discriminator_weight)


def electra_15(
    networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> ObjectiveSums:
    """ELECTRA 15 %: the discriminator is asked about masked positions only. Arguments as for `electra`."""
    corruption = corrupt(networks, batch, draws, config)
    return detect(networks, corruption, draws, config.discriminator_weight, at_masked_positions(batch))


def random_15(
    networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> ObjectiveSums:
    """The discriminator is asked about as many positions as are masked, chosen anew. Arguments as for `electra`.

    Tells apart what the loss loses in `electra_15`: the positions, or that they are the masked ones.
    """
    corruption = corrupt(networks, batch, draws, config)
    return detect(networks, corruption, draws, config.discriminator_weight, at_random_positions(batch, draws))


def at_random_positions(batch: MaskedBatch, draws: Draws) -> Tensor:
    """float32[B, L]; 1 at as many real positions of each row as it has masked ones, whichever those are."""
    length, room = batch.original_ids.shape[1], batch.masked_positions.shape[1]
    # As in `apply_mask`: 63 random bits leave no ties, and padding gets negative scores that differ.
    scores = draws.for_rows(batch.rows).words("random_15.positions", length).bitwise_and_((1 << 63) - 1)
    never = -1 - torch.arange(length, device=scores.device)
    positions = torch.where(batch.attention_mask, scores, never).topk(room, dim=1).indices
    # Masked tokens are real, so a row has at least as many real positions as masked ones.
    is_chosen = torch.arange(room, device=scores.device) < batch.masked_weights.sum(dim=1, keepdim=True)
    return marked(batch, positions, is_chosen.to(torch.float32))


def detect(
    networks: PretrainingNetworks,
    corruption: Corruption,
    draws: Draws,
    discriminator_weight: float,
    weights_BL: Tensor | None = None,
    generator_weight: float | None = 1.0,
) -> ObjectiveSums:
    """Run the discriminator on a corrupted batch, and add up.

    Args:
        networks: of which the discriminator runs.
        corruption: what the generator made.
        draws: random numbers of this step.
        discriminator_weight: λ.
        weights_BL: float32[B, L], 1 where the discriminator is asked, as often as positions are masked; None asks
            everywhere but at padding.
        generator_weight: of the generator's loss; None only watches it.
    """
    batch = corruption.batch
    logits_BL = networks.discriminator_logits(
        corruption.corrupted_ids,
        None if batch.is_packed else batch.attention_mask,
        batch.token_type_ids,
        draws.for_rows(batch.rows),
    )
    if weights_BL is None:
        weights = None if batch.is_packed else batch.attention_mask.float()
        loss = detection_loss(
            logits_BL, corruption.is_replaced, weights, batch.num_real, "num_real", discriminator_weight
        )
        is_scored = batch.attention_mask
    else:
        loss = detection_loss(
            logits_BL, corruption.is_replaced, weights_BL, batch.num_masked, "num_masked", discriminator_weight
        )
        is_scored = weights_BL > 0
    detection = Detection(corruption.corrupted_ids, corruption.is_replaced, logits_BL.detach(), is_scored)
    return ObjectiveSums(
        losses=corruption.losses(generator_weight) | {"discriminator_loss": loss},
        statistics=corruption.statistics() | detection_statistics(detection),
        detection=detection,
    )
