"""The networks of a spec before its corpus is prepared: for their names and shapes, and to be filled with weights."""

from __future__ import annotations

import torch

from electra_core.pretraining import ElectraForPretraining
from pipelines.specs.pretrain import PretrainSpec


def networks_to_fill(spec: PretrainSpec, vocab_size: int) -> ElectraForPretraining:
    """Networks of the spec's sizes, on the CPU, with the start its seed gives. A generator that is none draws evenly:
    what the corpus's ids weigh is not known, and no checkpoint holds it.
    """
    rng = torch.Generator().manual_seed(spec.training.seed)
    is_network = spec.objective.generator == "transformer"
    noise = None if is_network else torch.ones(vocab_size, dtype=torch.float64)
    return ElectraForPretraining(spec.model, vocab_size, spec.objective, rng, noise)
