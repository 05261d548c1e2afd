"""The networks of a spec before its corpus is prepared: for their names and shapes, and to be filled with weights."""

from __future__ import annotations

import torch

from electra_core.pretraining import ElectraForPretraining
from pipelines.specs.pretrain import PretrainSpec


def networks_to_fill(spec: PretrainSpec, vocab_size: int) -> ElectraForPretraining:
    """Networks of the spec's sizes, on the CPU, with the start its seed gives."""
    rng = torch.Generator().manual_seed(spec.training.seed)
    return ElectraForPretraining(spec.model, vocab_size, spec.objective, rng)
