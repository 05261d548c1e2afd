"""Held-out figures on one corruption, and what no learning would score beside them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import torch

from electra_core.batches import SpecialTokens, TokenBatch
from electra_core.masking import apply_mask
from electra_core.metrics import figures
from electra_core.objectives.corruption import corrupt
from electra_core.objectives.sums import ObjectiveSums
from electra_core.pretraining import ElectraForPretraining
from electra_core.randomness import Draws
from pipelines.rows.loader import ValidationRows, read_unigram_counts
from pipelines.training.roc import area_under_roc
from pipelines.training.workers import Worker

if TYPE_CHECKING:
    from pipelines.training.train_loop import TrainingTask

ROWS_PER_BATCH = 32


@dataclass(frozen=True)
class HeldOut:
    """Figures by name, and the baselines that have the same names."""

    figures: dict[str, float]
    baselines: dict[str, float]


@torch.no_grad()
def evaluate(networks: ElectraForPretraining, rows: ValidationRows, task: TrainingTask, worker: Worker) -> HeldOut:
    """Score both networks on held-out rows.

    Rows, masked positions and the number behind each sample are fixed by `evaluation.seed`; which tokens the samples
    become depends on the generator that is judged, so the discriminator's figures compare runs only where their
    generators are alike. Leaves the networks in eval mode.
    """
    networks.eval()
    spec, device = task.spec, worker.device
    special = SpecialTokens(*task.corpus.special)
    is_continuation = task.is_continuation(worker)
    unigram = read_unigram_counts(task.corpus)
    # Never masked, so never a sensible guess. [UNK] may be.
    unigram[[special.pad_id, special.cls_id, special.sep_id, special.mask_id]] = 0
    commonest_id = int(np.argmax(unigram))

    # Zeros for the worker whose share is empty: where there are fewer rows than workers, all still add up the same.
    sums = {field.name: torch.zeros((), device=device) for field in fields(ObjectiveSums)}
    commonest_correct = torch.zeros((), device=device)
    logits, labels = [], []
    share = worker.share(rows.num_rows)
    for start in range(share.start, share.stop, ROWS_PER_BATCH):
        indices = np.arange(start, min(start + ROWS_PER_BATCH, share.stop))
        ids = torch.from_numpy(rows.rows(indices)).to(device)
        keys = torch.from_numpy(indices).to(device)
        batch = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), keys, is_packed=True)
        draws = Draws(spec.evaluation.seed, 0, keys)
        masked = apply_mask(batch, spec.masking, special, draws, is_continuation)
        corruption = corrupt(networks, masked, draws, spec.objective)
        batch_logits = networks.discriminator_logits(corruption.corrupted_ids, None)
        for name, value in corruption.sums(batch_logits).detached().items():
            sums[name] += value
        commonest_correct += ((corruption.original_masked_ids == commonest_id) * masked.masked_weights).sum()
        logits.append(batch_logits.flatten())
        labels.append(corruption.is_replaced.flatten())

    empty = torch.zeros(0, device=device)
    all_logits = worker.gather(torch.cat(logits) if logits else empty).cpu().numpy()
    all_labels = worker.gather(torch.cat(labels).float() if labels else empty).cpu().numpy()
    total = worker.sum(torch.stack([*sums.values(), commonest_correct])).tolist()
    totals = dict(zip(sums, total[:-1], strict=True))
    named, num_masked = figures(totals), max(totals["num_masked"], 1.0)
    named["discriminator_auc"] = area_under_roc(all_labels, all_logits)
    baselines = {
        "generator_accuracy": total[-1] / num_masked,
        "discriminator_loss": named["discriminator_loss_floor"],
        "discriminator_accuracy": 1.0 - named["replaced_fraction"],
        "discriminator_precision": 0.0,
        "discriminator_recall": 0.0,
        "discriminator_f1": 0.0,
        "discriminator_auc": 0.5,
    }
    return HeldOut(named, baselines)
