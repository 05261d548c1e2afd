"""Objectives whose main network predicts tokens: BERT's, and two between BERT and ELECTRA (Clark et al. 2020, 3.4).

B rows, L positions, N masked positions per row, M = B · N, V padded_vocab_size, H hidden_size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.heads import gather_positions
from electra_core.masked_prediction import score_masked
from electra_core.networks import PretrainingNetworks
from electra_core.objectives.corruption import corrupt
from electra_core.objectives.detection import detection_statistics
from electra_core.objectives.sums import Detection, Loss, ObjectiveSums
from electra_core.randomness import Draws


def mlm(networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig) -> ObjectiveSums:
    """BERT (Devlin et al. 2019): the main network alone fills masked positions; no generator runs.

    Args:
        networks: the main network with a language-model head.
        batch: rows with masked positions; their shares of [MASK], random and original tokens are the masking's.
        draws: random numbers of this step; only its seed and step are used, the rows are the batch's.
        config: not used; the one loss has weight 1.
    """
    loss, correct = _masked_prediction(networks, batch, batch.generator_input_ids, draws)
    return ObjectiveSums(
        losses={"mlm_loss": Loss(loss, batch.num_masked, "num_masked")},
        statistics={"mlm_correct": correct, "mlm_correct_positions": batch.num_masked},
    )


def replace_mlm(
    networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> ObjectiveSums:
    """Replace MLM: the main network predicts the originals of masked positions from the corrupted input.

    It never sees [MASK], which finetuning never shows it either. Arguments as for `electra`.
    """
    corruption = corrupt(networks, batch, draws, config)
    loss, correct = _masked_prediction(networks, batch, corruption.corrupted_ids, draws)
    return ObjectiveSums(
        losses=corruption.losses()
        | {"mlm_loss": Loss(loss, batch.num_masked, "num_masked", config.discriminator_weight)},
        statistics=corruption.statistics() | {"mlm_correct": correct, "mlm_correct_positions": batch.num_masked},
    )


def all_tokens_mlm(
    networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> ObjectiveSums:
    """All-Tokens MLM: the main network predicts every real token from the corrupted input, and may copy.

    p(x_t) = D_t · 1[x_t = corrupted_t] + (1 − D_t) · softmax_t(x_t), the loss −ln p(x_t) over every real t. The gate
    is the detection head: D_t = σ(−logit_t), so that its logit keeps its meaning, P(replaced) = 1 − D_t. It learns that
    without labels, which are used for statistics alone. Arguments as for `electra`.
    """
    corruption = corrupt(networks, batch, draws, config)
    attention_mask = None if batch.is_packed else batch.attention_mask
    hidden_BLH = networks.discriminator_hidden(
        corruption.corrupted_ids, attention_mask, batch.token_type_ids, draws.for_rows(batch.rows)
    )
    gate_BL = networks.discriminator_head(hidden_BLH).float()
    logits_BLV = networks.language_logits(hidden_BLH).float()

    token_BLV = F.log_softmax(logits_BLV, dim=-1)
    token_BL = token_BLV.gather(2, batch.original_ids[:, :, None]).squeeze(2)
    # In log space: at a certain gate or an impossible token one of the two terms underflows, never their sum's log.
    generated_BL = F.logsigmoid(gate_BL) + token_BL
    copied_BL = torch.logaddexp(F.logsigmoid(-gate_BL), generated_BL)
    log_p_BL = torch.where(corruption.is_replaced, generated_BL, copied_BL)
    loss = -(log_p_BL * batch.attention_mask).sum()

    detection = Detection(corruption.corrupted_ids, corruption.is_replaced, gate_BL.detach(), batch.attention_mask)
    with torch.no_grad():
        predicted_BL = _most_probable(token_BLV, gate_BL, corruption.corrupted_ids)
        is_right = (predicted_BL == batch.original_ids) & batch.attention_mask
    return ObjectiveSums(
        losses=corruption.losses() | {"mlm_loss": Loss(loss, batch.num_real, "num_real", config.discriminator_weight)},
        statistics=corruption.statistics()
        | {"mlm_correct": is_right.sum(dtype=torch.float32), "mlm_correct_positions": batch.num_real}
        | detection_statistics(detection),
        detection=detection,
    )


def _masked_prediction(
    networks: PretrainingNetworks, batch: MaskedBatch, input_ids: Tensor, draws: Draws
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the originals at masked positions, summed, and how many are the most probable token."""
    attention_mask = None if batch.is_packed else batch.attention_mask
    hidden_BLH = networks.discriminator_hidden(
        input_ids, attention_mask, batch.token_type_ids, draws.for_rows(batch.rows)
    )
    score = score_masked(
        networks.language_head,
        networks.discriminator_tables.word,
        gather_positions(hidden_BLH, batch.masked_positions),
        batch.original_ids.gather(1, batch.masked_positions).flatten(),
        batch.masked_weights.flatten(),
    )
    return score.loss, (score.is_correct * batch.masked_weights.flatten()).sum()


def _most_probable(token_BLV: Tensor, gate_BL: Tensor, corrupted_ids: Tensor) -> Tensor:
    """int64[B, L]; argmax of the mixture: either the token that stands there or the likeliest one."""
    best_BL = token_BLV.max(dim=-1)
    generated = F.logsigmoid(gate_BL) + best_BL.values
    same = F.logsigmoid(gate_BL) + token_BLV.gather(2, corrupted_ids[:, :, None]).squeeze(2)
    copied = torch.logaddexp(F.logsigmoid(-gate_BL), same)
    return torch.where(copied >= generated, corrupted_ids, best_BL.indices)
