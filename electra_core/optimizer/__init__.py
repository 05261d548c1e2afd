"""The optimizers, by the name a spec gives them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from electra_core.config import OptimizerConfig
from electra_core.optimizer.adam import AdamW, ElectraAdam
from electra_core.optimizer.clipping import clip_by_global_norm
from electra_core.optimizer.groups import parameter_groups, set_learning_rate
from electra_core.optimizer.muon import Muon, Peers

__all__ = [
    "AdamW",
    "ElectraAdam",
    "Muon",
    "Peers",
    "clip_by_global_norm",
    "make_optimizer",
    "parameter_groups",
    "set_learning_rate",
]


def make_optimizer(
    networks: nn.Module,
    config: OptimizerConfig,
    peers: Peers | None = None,
    products_dtype: torch.dtype = torch.float32,
) -> ElectraAdam:
    """The optimizer `config.name` over all of `networks`; set its rate with `set_learning_rate` before each step.

    Args:
        networks: parameters by the names of `ElectraForPretraining`.
        config: the rules.
        peers: data-parallel workers Muon shares its work with.
        products_dtype: what Muon's matrix products compute in.
    """
    groups = parameter_groups(networks, config)
    options: dict[str, Any] = {"lr": config.learning_rate, "betas": (config.beta1, config.beta2), "eps": config.epsilon}
    match config.name:
        case "electra_adam":
            return ElectraAdam(groups, **options)
        case "adamw":
            return AdamW(groups, **options)
        case "muon":
            return Muon(
                groups,
                momentum=config.muon_momentum,
                num_newton_schulz_steps=config.muon_ns_steps,
                peers=peers,
                products_dtype=products_dtype,
                **options,
            )
