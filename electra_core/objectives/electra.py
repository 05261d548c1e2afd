"""Replaced-token detection with a generator trained by masked language modelling (Clark et al. 2020, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.objectives.corruption import corrupt
from electra_core.objectives.sums import ObjectiveSums
from electra_core.randomness import Draws

if TYPE_CHECKING:
    from electra_core.pretraining import ElectraForPretraining


def electra(
    networks: ElectraForPretraining, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> ObjectiveSums:
    """Generator, sampling, discriminator over every real position, [CLS] and [SEP] included.

    Args:
        networks: both networks.
        batch: rows with masked positions.
        draws: random numbers of this step; only its seed and step are used, the rows are the batch's.
        config: temperature and `disallow_correct`; λ is applied by `ObjectiveSums.total`.
    """
    corruption = corrupt(networks, batch, draws, config)
    logits = networks.discriminator_logits(
        corruption.corrupted_ids,
        None if batch.is_packed else batch.attention_mask,
        batch.token_type_ids,
        draws.for_rows(batch.rows),
    )
    return corruption.sums(logits)
