"""Electric: an energy-based cloze model by noise-contrastive estimation (Clark et al. 2020, arXiv:2012.08561).

B rows, L positions, N masked positions per row, V padded_vocab_size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.heads import gather_positions
from electra_core.networks import PretrainingNetworks
from electra_core.objectives.corruption import put_in
from electra_core.objectives.detection import at_masked_positions, detection_loss, detection_statistics
from electra_core.objectives.sums import Detection, Loss, ObjectiveSums
from electra_core.randomness import Draws
from electra_core.sampling import sample, sampling_weights


def electric(networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig) -> ObjectiveSums:
    """Cloze(two towers) + λ · NCE over every real position: algorithm 2 of the paper.

    The main network gives each token an energy E, so that p̂(x_t | rest) = exp(−E_t). Of a row's n real tokens k are
    replaced by samples of the cloze network's q. A token was noise with probability
    k·q / (k·q + (n − k)·p̂), whose logit is E + ln q + ln(k / (n − k)); the loss is the binary cross-entropy of that,
    with q held fixed and always that of the original row. Needed at tokens that were not replaced too, q must be a
    distribution at *every* position given all others: that is why the generator is two towers here, not the masked LM.

    A sample that happens to be the original is noise all the same, as the estimate demands and G has it. Other than
    here G puts mask_prob for k / n. As there, the detection head gives the energy (the paper writes wᵀh). The towers
    learn every real token, [CLS] and [SEP] included, which both know at once from their places; G leaves them out.
    Arguments as for `electra`; only λ is used of `config`.
    """
    draws = draws.for_rows(batch.rows)
    attention_mask = None if batch.is_packed else batch.attention_mask
    positions, num_real, num_masked = batch.masked_positions, batch.num_real, batch.num_masked

    logits_BLV = networks.cloze_logits(batch.original_ids, attention_mask, batch.token_type_ids, draws).float()
    log_q_BLV = F.log_softmax(logits_BLV, dim=-1)
    generator_loss = -(_at(log_q_BLV, batch.original_ids) * batch.attention_mask).sum()

    with torch.no_grad():
        masked_logits_MV = gather_positions(logits_BLV, positions)
        uniform_M = draws.uniform("sampling", positions.shape[1]).flatten()
        sampled_M = sample(sampling_weights(masked_logits_MV, 1.0, None), uniform_M)
        corrupted_ids = put_in(batch, sampled_M.view_as(positions))
        log_q_BL = _at(log_q_BLV, corrupted_ids)
        original_M = batch.original_ids.gather(1, positions).flatten()
        correct = ((masked_logits_MV.argmax(dim=-1) == original_M) * batch.masked_weights.flatten()).sum()

    energy_BL = networks.discriminator_logits(corrupted_ids, attention_mask, batch.token_type_ids, draws)
    logits_BL = energy_BL + log_q_BL + log_noise_ratio(batch)
    weights = None if batch.is_packed else batch.attention_mask.float()
    is_noise = at_masked_positions(batch) > 0
    loss = detection_loss(logits_BL, is_noise, weights, num_real, "num_real", config.discriminator_weight)
    detection = Detection(corrupted_ids, is_noise, logits_BL.detach(), batch.attention_mask)
    return ObjectiveSums(
        losses={"generator_loss": Loss(generator_loss, num_real, "num_real"), "discriminator_loss": loss},
        statistics={
            "generator_correct": correct,
            "generator_correct_positions": num_masked,
            **detection_statistics(detection),
        },
        detection=detection,
    )


def log_noise_ratio(batch: MaskedBatch) -> Tensor:
    """ln(k / (n − k)) of each row, float32[B, 1]."""
    num_noise = batch.masked_weights.sum(dim=1, keepdim=True)
    num_original = batch.attention_mask.sum(dim=1, keepdim=True) - num_noise
    # A row without an ordinary token has no noise; −∞ would make NaN of its loss.
    return torch.log(num_noise.clamp(min=1.0) / num_original.clamp(min=1.0))


def _at(values_BLV: Tensor, ids: Tensor) -> Tensor:
    return values_BLV.gather(2, ids[:, :, None]).squeeze(2)
