"""Which parameter gets which rule: pure functions of its name, and the groups an optimizer takes.

Names are those of `ElectraForPretraining.named_parameters()`, such as `generator.layers.0.intermediate.weight`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from electra_core.config import OptimizerConfig

WORD_TABLES = ("word", "word_delta")
"""Last parts of the names of tables with a row per word."""
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
    """Whether weight decay applies: not to biases and LayerNorms, which are vectors. To embeddings it does, as in G,
    and to the one weight that is a vector.
    """
    return (num_dimensions > 1 and not name.endswith("bias")) or name == "generator_baseline"


def layers_by_network(names: Iterable[str]) -> dict[str, int]:
    """Number of encoder layers of each network, such as {"generator": 12, "discriminator": 12}."""
    counts: dict[str, int] = {}
    for name in names:
        network, is_layer, rest = name.partition(".layers.")
        if is_layer:
            counts[network] = max(counts.get(network, 0), int(rest.split(".")[0]) + 1)
    return counts


def levels_below_head(name: str, num_layers: Mapping[str, int]) -> int:
    """How often `layerwise_decay` multiplies a parameter's rate.

    0 for a head, L − i for layer i of L counted from 0, L + 1 for embeddings and the projection out of them. Embeddings
    that networks of unlike depth share take the deeper one's L. (G counts one more for all but the head; see
    `OptimizerConfig.layerwise_decay_skips_one`.)
    """
    network, is_layer, rest = name.partition(".layers.")
    if is_layer:
        return num_layers[network] - int(rest.split(".")[0])
    if "embeddings" in name:
        owner = name.partition(".embeddings_projection")[0]
        return num_layers.get(owner, max(num_layers.values(), default=0)) + 1
    return 0


def learning_rate_scale(name: str, num_blocks: int, num_layers: Mapping[str, int], config: OptimizerConfig) -> float:
    """What multiplies the schedule's rate for one parameter; `num_blocks` > 0 says that Muon takes it."""
    scale = 1.0
    if num_blocks and config.muon_learning_rate is not None:
        scale *= config.muon_learning_rate / config.learning_rate
    if config.embedding_learning_rate is not None and name.rpartition(".")[2] in WORD_TABLES:
        scale *= config.embedding_learning_rate / config.learning_rate
    if config.layerwise_decay is not None:
        levels = levels_below_head(name, num_layers)
        scale *= config.layerwise_decay ** (levels + (levels > 0 and config.layerwise_decay_skips_one))
    if name.startswith(("discriminator", "language_head")):  # the main network with all of its heads
        scale *= config.discriminator_learning_rate_ratio
    return scale


def parameter_groups(module: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Groups of parameters with one rule each, in an order that the names decide.

    Every parameter that takes gradient is in exactly one. Keys: `params`, `weight_decay`, `num_blocks`,
    `learning_rate_scale`, which multiplies the rate of the schedule.
    """
    num_layers = layers_by_network(name for name, _ in module.named_parameters())
    groups: dict[tuple[float, int, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = config.weight_decay if is_decayed(name, parameter.dim()) else 0.0
        blocks = num_orthogonalised_blocks(name, parameter.dim()) if config.name == "muon" else 0
        scale = learning_rate_scale(name, blocks, num_layers, config)
        groups.setdefault((decay, blocks, scale), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "num_blocks": blocks, "learning_rate_scale": scale}
        for (decay, blocks, scale), parameters in groups.items()
    ]


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every group the schedule's rate times its own scale."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["learning_rate_scale"]
