"""Which parameter gets which rule: pure functions of its name, and the groups an optimizer takes.

Names are those of `ElectraForPretraining.named_parameters()`, such as `generator.layers.0.intermediate.weight`.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from electra_core.config import OptimizerConfig

FUSED_BLOCKS = {"query_key_value": 3}
"""Linear layers that are several H × H matrices on top of each other; each is a map of its own."""


def num_orthogonalised_blocks(name: str, num_dimensions: int) -> int:
    """Blocks of rows that Muon orthogonalises; 0 leaves the parameter to Adam.

    Muon takes the matrices that map hidden states to hidden states: the linear layers of the encoders, the projection
    into them, and the dense layers of the heads. Adam keeps embeddings and position tables, whose rows are looked up
    one by one, LayerNorms, biases, and the last layer of a head. What is not known stays with Adam.
    """
    *path, kind = name.split(".")
    if kind != "weight" or num_dimensions != 2:
        return 0
    if "layers" in path or path[-1] in ("embeddings_projection", "dense"):
        return FUSED_BLOCKS.get(path[-1], 1)
    return 0


def is_decayed(name: str, num_dimensions: int) -> bool:
    """Whether weight decay applies: not to biases and LayerNorms, which are vectors; to embeddings it does, as in G."""
    return num_dimensions > 1 and not name.endswith("bias")


def parameter_groups(module: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Groups of parameters with one rule each, in an order that the names decide.

    Every parameter that takes gradient is in exactly one. Keys: `params`, `weight_decay`, `num_blocks`,
    `learning_rate_scale`, which multiplies the rate of the schedule.
    """
    groups: dict[tuple[float, int, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = config.weight_decay if is_decayed(name, parameter.dim()) else 0.0
        blocks = num_orthogonalised_blocks(name, parameter.dim()) if config.name == "muon" else 0
        scale = 1.0
        if blocks and config.muon_learning_rate is not None:
            scale *= config.muon_learning_rate / config.learning_rate
        groups.setdefault((decay, blocks, scale), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "num_blocks": blocks, "learning_rate_scale": scale}
        for (decay, blocks, scale), parameters in groups.items()
    ]


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every group the schedule's rate times its own scale."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["learning_rate_scale"]
