"""Adversarial training (Clark et al. 2020, section 3.4 and appendix F): the generator is paid for misleading.

B rows, L positions, N masked positions per row, M = B · N, V padded_vocab_size, H hidden_size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.networks import PretrainingNetworks
from electra_core.objectives.corruption import Corruption, put_in
from electra_core.objectives.electra import detect
from electra_core.objectives.sums import Loss, ObjectiveSums
from electra_core.randomness import Draws
from electra_core.sampling import sample, sampling_weights


def adversarial(
    networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> ObjectiveSums:
    """λ · RTD for the discriminator; REINFORCE with a learned baseline, one sample, for the generator.

    The reward at a masked position is the discriminator's loss there: −ln P(original) of a lucky sample, else
    −ln P(replaced). The generator descends −(reward − b) · ln p(sample), where p is what the sample was drawn from
    (its temperature included) and b = −ln σ(wᵀh) of its own hidden state h. The baseline learns by cross-entropy of
    σ(wᵀh) against exp(−reward), the probability that the discriminator gave the truth; h is held fixed there, so that
    only the reward shapes the generator. Both means run over masked positions and have weight 1: under Adam the scale
    of a loss that only one network feels matters through the joint clipping alone. The paper mentions no entropy bonus.
    The generator's masked-LM loss is watched, never minimised. Arguments as for `electra`.
    """
    draws = draws.for_rows(batch.rows)
    attention_mask = None if batch.is_packed else batch.attention_mask
    weights_M = batch.masked_weights.flatten()
    original_M = batch.original_ids.gather(1, batch.masked_positions).flatten()

    hidden_BLH = networks.generator_hidden(batch.generator_input_ids, attention_mask, batch.token_type_ids, draws)
    logits_MV = networks.masked_logits(hidden_BLH, batch.masked_positions).float()
    uniform_M = draws.uniform("sampling", batch.masked_positions.shape[1]).flatten()
    sampled_M = sample(sampling_weights(logits_MV.detach(), config.temperature, None), uniform_M)
    corrupted_ids = put_in(batch, sampled_M.view_as(batch.masked_positions))
    with torch.no_grad():
        corruption = Corruption(
            batch=batch,
            corrupted_ids=corrupted_ids,
            is_replaced=corrupted_ids != batch.original_ids,
            generator_loss=(F.cross_entropy(logits_MV, original_M, reduction="none") * weights_M).sum(),
            generator_correct=((logits_MV.argmax(dim=-1) == original_M) * weights_M).sum(),
        )
    detected = detect(networks, corruption, draws, config.discriminator_weight, generator_weight=None)
    assert detected.detection is not None

    with torch.no_grad():
        verdict_M = detected.detection.logits.gather(1, batch.masked_positions).flatten()
        is_replaced_M = corruption.is_replaced.gather(1, batch.masked_positions).flatten()
        reward_M = F.binary_cross_entropy_with_logits(verdict_M, is_replaced_M.float(), reduction="none")
    baseline_logit_M = networks.baseline_logits(hidden_BLH.detach(), batch.masked_positions).float()
    advantage_M = reward_M + F.logsigmoid(baseline_logit_M.detach())
    log_p_M = F.log_softmax(logits_MV / config.temperature, dim=-1).gather(1, sampled_M[:, None]).squeeze(1)
    reinforce = -(advantage_M * log_p_M * weights_M).sum()
    baseline = F.binary_cross_entropy_with_logits(baseline_logit_M, torch.exp(-reward_M), weights_M, reduction="sum")
    num_masked = batch.num_masked
    return ObjectiveSums(
        losses={
            **detected.losses,
            "reinforce_loss": Loss(reinforce, num_masked, "num_masked"),
            "baseline_loss": Loss(baseline, num_masked, "num_masked"),
        },
        statistics={
            **detected.statistics,
            "reward": (reward_M * weights_M).sum(),
            "reward_positions": num_masked,
        },
        detection=detected.detection,
    )
