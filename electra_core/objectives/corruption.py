"""The first half of replaced-token detection: the generator fills masked positions, and the samples go in.

B rows, L positions, N masked positions per row, M = B · N, V padded_vocab_size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.heads import gather_positions
from electra_core.masked_prediction import predict_masked
from electra_core.networks import PretrainingNetworks
from electra_core.objectives.sums import Loss
from electra_core.randomness import Draws


@dataclass(frozen=True, slots=True)
class Corruption:
    """A batch with the generator's samples in it."""

    batch: MaskedBatch
    corrupted_ids: Tensor
    """int64[B, L]; the *unmasked* input with the samples at the masked positions."""
    is_replaced: Tensor
    """bool[B, L]; where the sample differs from the original. A lucky generator's tokens count as original."""
    generator_loss: Tensor | None
    """Cross-entropy summed over masked positions, nats; the only part that carries gradient. None, as the next, where
    the generator is no network."""
    generator_correct: Tensor | None
    """Masked positions where the generator's most probable token is the original, 0-dim float32."""

    def losses(self, weight: float | None = 1.0) -> dict[str, Loss]:
        """The generator's masked-language-model loss, or nothing. A weight of None only watches it."""
        if self.generator_loss is None:
            return {}
        return {"generator_loss": Loss(self.generator_loss, self.batch.num_masked, "num_masked", weight)}

    def statistics(self) -> dict[str, Tensor]:
        """How often the generator was right, or nothing."""
        if self.generator_correct is None:
            return {}
        return {"generator_correct": self.generator_correct, "generator_correct_positions": self.batch.num_masked}


def corrupt(networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig) -> Corruption:
    """Run the generator and put one sample per masked position into the original rows.

    Args:
        networks: of which the generator runs.
        batch: B rows with N masked positions each.
        draws: random numbers of this step; only its seed and step are used, the rows are the batch's.
        config: kind of generator, temperature and `disallow_correct`.
    """
    draws = draws.for_rows(batch.rows)
    if config.generator != "transformer":
        return _corrupt_with_noise(networks, batch, draws, config)
    attention_mask = None if batch.is_packed else batch.attention_mask
    weights_M = batch.masked_weights.flatten()

    # Logits at the masked positions only.
    hidden_BLH = networks.generator_hidden(batch.generator_input_ids, attention_mask, batch.token_type_ids, draws)
    original_BN = batch.original_ids.gather(1, batch.masked_positions)
    original_M = original_BN.flatten()
    prediction = predict_masked(
        networks.generator_head,
        networks.generator_tables.word,
        gather_positions(hidden_BLH, batch.masked_positions),
        original_M,
        weights_M,
        draws.uniform("sampling", batch.masked_positions.shape[1]).flatten(),
        config.temperature,
        original_M if config.disallow_correct else None,
    )
    corrupted_ids = put_in(batch, prediction.samples.view_as(original_BN))  # no gradient passes a sample
    return Corruption(
        batch=batch,
        corrupted_ids=corrupted_ids,
        is_replaced=corrupted_ids != batch.original_ids,
        generator_loss=prediction.loss,
        generator_correct=(prediction.is_correct * weights_M).sum(),
    )


def put_in(batch: MaskedBatch, sampled_BN: Tensor) -> Tensor:
    """int64[B, L]: the unmasked input with int64[B, N] samples at the masked positions. Filler keeps its token."""
    original_BN = batch.original_ids.gather(1, batch.masked_positions)
    sampled_BN = torch.where(batch.masked_weights > 0, sampled_BN, original_BN)
    return batch.original_ids.scatter(1, batch.masked_positions, sampled_BN)


def _corrupt_with_noise(
    networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> Corruption:
    """Replacements from a fixed distribution; nothing is trained by them."""
    original_BN = batch.original_ids.gather(1, batch.masked_positions)
    uniform_M = draws.uniform("sampling", original_BN.shape[1]).flatten()
    disallowed = original_BN.flatten() if config.disallow_correct else None
    corrupted_ids = put_in(batch, networks.noise_generator.sample(uniform_M, disallowed).view_as(original_BN))
    return Corruption(batch, corrupted_ids, corrupted_ids != batch.original_ids, None, None)
