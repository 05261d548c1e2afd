"""Losses of finetuning: float32 scalars, means over what has a label."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_core.config import TaskKind

NO_LABEL = -100
"""Label of a token that has none: special tokens, padding, all pieces of a word but the first."""


def task_loss(
    task: TaskKind,
    logits: Tensor,
    labels: Tensor,
    class_weights: Tensor | None = None,
    num_choices: int = 1,
) -> Tensor:
    """The loss of a batch.

    Args:
        task: what the head predicts.
        logits: as `ElectraForFinetuning` gives them.
        labels: int64[B] of a classification, float32[B] of a regression, int64[B, L] of tokens (`NO_LABEL` where there
            is none), int64[B, 2] positions of an answer's first and last token, int64[B / num_choices] of choices.
        class_weights: float32[C]; of a classification, of texts or tokens. The mean is weighted too.
        num_choices: rows for each example of a multiple choice.

    Returns:
        Nats per label; squared difference per row for a regression.
    """
    match task:
        case "classification":
            return F.cross_entropy(logits, labels, weight=class_weights)
        case "regression":
            return F.mse_loss(logits.squeeze(-1), labels)
        case "token_classification":
            flat = labels.flatten()
            total = F.cross_entropy(
                logits.flatten(0, 1), flat, weight=class_weights, ignore_index=NO_LABEL, reduction="sum"
            )
            # A batch may have no label at all, if every word of it was cut off: then its loss is 0, not 0 / 0.
            return total / _total_weight(flat, class_weights).clamp(min=1e-6)
        case "question_answering":
            start_logits, end_logits = logits.unbind(-1)
            start, end = labels.unbind(-1)
            return (F.cross_entropy(start_logits, start) + F.cross_entropy(end_logits, end)) / 2
        case "multiple_choice":
            return F.cross_entropy(logits.view(-1, num_choices), labels)


def mask_padding(logits: Tensor, attention_mask: Tensor) -> Tensor:
    """Logits of a span's start and end, float[B, L, 2], with what is no token made impossible."""
    return logits.masked_fill(~attention_mask[:, :, None], -1e9)


def _total_weight(labels: Tensor, class_weights: Tensor | None) -> Tensor:
    has_label = labels != NO_LABEL
    if class_weights is None:
        return has_label.sum(dtype=torch.float32)
    return (class_weights[labels.clamp(min=0)] * has_label).sum()
