"""Held-out figures on one corruption, and what no learning would score beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from electra_core.batches import SpecialTokens
from electra_core.metrics import figures
from electra_core.pretraining import ElectraForPretraining
from pipelines.rows.loader import ValidationRows, read_unigram_counts
from pipelines.training.batches import HeldOutBatches
from pipelines.training.roc import area_under_roc
from pipelines.training.task import TrainingTask
from pipelines.training.workers import Worker

ROWS_PER_BATCH = 32


@dataclass(frozen=True)
class HeldOut:
    """Figures by name, and the baselines that have the same names."""

    figures: dict[str, float]
    baselines: dict[str, float]


@torch.no_grad()
def evaluate(networks: ElectraForPretraining, rows: ValidationRows, task: TrainingTask, worker: Worker) -> HeldOut:
    """Score the networks on held-out rows, with the objective they are trained by.

    Rows, masked positions and the number behind each sample are fixed by `evaluation.seed`; which tokens the samples
    become depends on the generator that is judged, so the discriminator's figures compare runs only where their
    generators are alike. Leaves the networks in eval mode.
    """
    networks.eval()
    device = worker.device
    commonest_id, batches = _commonest_id(task), HeldOutBatches(rows, task, worker)
    sums: dict[str, Tensor] = {}
    logits, labels = [torch.zeros(0, device=device)], [torch.zeros(0, device=device)]
    share = worker.share(rows.num_rows)
    # Where there are fewer rows than workers, one without a row scores the first and counts it nothing: all workers
    # must add up the same names.
    for start in range(share.start, share.stop, ROWS_PER_BATCH) or (0,):
        indices = np.arange(start, min(start + ROWS_PER_BATCH, share.stop) if share else 1)
        masked, draws = batches.of(indices)
        scored = networks(masked, draws)
        original = masked.original_ids.gather(1, masked.masked_positions)
        added = scored.detached() | {
            "num_masked": masked.num_masked,
            "num_commonest": ((original == commonest_id) * masked.masked_weights).sum(),
        }
        for name, value in added.items():
            sums[name] = sums.get(name, 0.0) + value * float(bool(share))
        if scored.detection is not None and share:
            logits.append(scored.detection.logits[scored.detection.is_scored])
            labels.append(scored.detection.is_replaced[scored.detection.is_scored].float())

    all_logits = worker.gather(torch.cat(logits)).cpu().numpy()
    all_labels = worker.gather(torch.cat(labels)).cpu().numpy()
    totals = dict(zip(sums, worker.sum(torch.stack([*sums.values()])).tolist(), strict=True))
    named = figures(totals)
    if "num_scored" in totals:
        named["discriminator_auc"] = area_under_roc(all_labels, all_logits)
    return HeldOut(named, _baselines(named, totals["num_commonest"] / max(totals["num_masked"], 1.0)))


def _commonest_id(task: TrainingTask) -> int:
    """The id a guesser without a context would always say."""
    special = SpecialTokens(*task.corpus.special)
    unigram = read_unigram_counts(task.corpus)
    # Never masked, so never a sensible guess. [UNK] may be.
    unigram[[special.pad_id, special.cls_id, special.sep_id, special.mask_id]] = 0
    return int(np.argmax(unigram))


def _baselines(named: Mapping[str, float], commonest_fraction: float) -> dict[str, float]:
    """What no learning would score, for those of the figures that have such a score."""
    unlearned = {"generator_accuracy": commonest_fraction, "mlm_accuracy": commonest_fraction}
    if "replaced_fraction" in named:
        # One answer for all positions, the commoner one. Where a network also predicts, it can copy every token.
        replaced = named["replaced_fraction"]
        says_replaced = replaced > 0.5
        unlearned |= {
            "mlm_accuracy": 1.0 - replaced,
            "discriminator_accuracy": max(replaced, 1.0 - replaced),
            "discriminator_precision": replaced if says_replaced else 0.0,
            "discriminator_recall": float(says_replaced),
            "discriminator_f1": 2 * replaced / (1 + replaced) if says_replaced else 0.0,
            "discriminator_auc": 0.5,
        }
    if "discriminator_loss_floor" in named:
        unlearned["discriminator_loss"] = named["discriminator_loss_floor"]
    return {name: value for name, value in unlearned.items() if name in named}
