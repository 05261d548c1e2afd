"""The score of one sentence by Transformers' classes and nothing of ours, one mask at a time: a judge for pairs."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import ElectraForMaskedLM, ElectraForPreTraining

CLASSES = {"discriminator": ElectraForPreTraining, "generator": ElectraForMaskedLM}


@torch.no_grad()
def plain_score(network: str, folder: Path, ids: torch.Tensor, mask_id: int) -> float:
    """Σ log P(original) by a discriminator, the pseudo-log-likelihood by a generator.

    Args:
        network: "discriminator" or "generator".
        folder: of the network, in the layout of Transformers.
        ids: int64[1, L], [CLS] and [SEP] included.
        mask_id: of [MASK].
    """
    model = CLASSES[network].from_pretrained(folder).eval()
    if network == "discriminator":
        return float(torch.nn.functional.logsigmoid(-model(ids).logits[0, 1:-1]).sum())
    total = 0.0
    for position in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, position] = mask_id
        total += float(model(masked).logits[0, position].log_softmax(-1)[ids[0, position]])
    return total
