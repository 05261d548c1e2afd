"""How natural a sentence is to a pretrained network, without any training.

A discriminator says of each token how likely it is the original; a masked language model has each token masked in turn
and says how likely it is there (pseudo-log-likelihood, Salazar et al. 2020, arXiv:1910.14659). Both are sums over the
sentence's ordinary tokens, in nats, so they compare sentences that say nearly the same.

B rows, L positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_core.batches import SpecialTokens, TokenBatch
from electra_core.heads import gather_positions
from electra_core.scoring.networks import Discriminator, MaskedLanguageModel


def ordinary_tokens(batch: TokenBatch, special: SpecialTokens) -> Tensor:
    """bool[B, L]; True at tokens of text: not at padding, [CLS] and [SEP]."""
    ids = batch.input_ids
    return batch.attention_mask & (ids != special.cls_id) & (ids != special.sep_id) & (ids != special.pad_id)


@torch.no_grad()
def original_log_probability(network: Discriminator, batch: TokenBatch, special: SpecialTokens) -> Tensor:
    """Σ log P(original) over the ordinary tokens of each row, float64[B], nats.

    Args:
        network: in eval mode.
        batch: one sentence a row, unmasked.
        special: ids of [PAD], [CLS] and [SEP].
    """
    log_probability_BL = F.logsigmoid(-network(batch))  # a logit is of P(replaced)
    return log_probability_BL.double().where(ordinary_tokens(batch, special), 0.0).sum(dim=1)


@torch.no_grad()
def pseudo_log_likelihood(
    network: MaskedLanguageModel, batch: TokenBatch, special: SpecialTokens, rows_at_once: int
) -> Tensor:
    """Σ log P(token | all others) over the ordinary tokens of each row, float64[B], nats.

    Args:
        network: in eval mode. It reads each row once for every ordinary token, with this one masked.
        batch: one sentence a row.
        special: ids of [PAD], [CLS], [SEP] and [MASK].
        rows_at_once: rows that are computed together: bounds memory, changes nothing else.
    """
    is_ordinary = ordinary_tokens(batch, special)
    row_M, position_M = is_ordinary.nonzero(as_tuple=True)
    log_probability_BL = torch.zeros(batch.input_ids.shape, dtype=torch.float64, device=row_M.device)
    for rows, positions in zip(row_M.split(rows_at_once), position_M.split(rows_at_once), strict=True):
        ids = batch.input_ids[rows]
        masked = ids.scatter(1, positions[:, None], special.mask_id)
        mask = None if batch.is_packed else batch.attention_mask[rows]
        types = None if batch.token_type_ids is None else batch.token_type_ids[rows]
        hidden = gather_positions(network.hidden(masked, mask, types), positions[:, None])
        logits = network.head(hidden, network.embeddings.word).float()
        targets = ids.gather(1, positions[:, None]).squeeze(1)
        log_probability_BL[rows, positions] = -F.cross_entropy(logits, targets, reduction="none").double()
    return log_probability_BL.sum(dim=1)
