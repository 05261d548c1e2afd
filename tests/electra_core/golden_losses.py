"""Twenty CPU losses of a tiny run. A change that should not change the computation keeps them.

python tests/electra_core/golden_losses.py > tests/golden/electra_losses.json
"""

from __future__ import annotations

import json
import sys

import torch
from tiny import SPECIAL, draws, networks, token_batch

from electra_core.config import MaskingConfig, OptimizerConfig
from electra_core.masking import apply_mask
from electra_core.optimizer import clip_by_global_norm, make_optimizer, set_learning_rate
from electra_core.schedule import learning_rate

COMMAND = "python tests/electra_core/golden_losses.py > tests/golden/electra_losses.json"
NUM_STEPS = 20


def train(num_steps: int = NUM_STEPS, dropout: float = 0.1, **changes) -> list[tuple[float, float, float]]:
    """Generator's loss, discriminator's loss and share of tokens replaced, at each step on the same four rows."""
    net = networks(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    config = OptimizerConfig(learning_rate=3e-3, warmup_steps=5).model_copy(update=changes)
    optimizer = make_optimizer(net, config)
    batch = token_batch(padded=True)
    losses = []
    for step in range(num_steps):
        masked = apply_mask(batch, MaskingConfig(), SPECIAL, draws(batch, step))
        sums = net(masked, draws(batch, step))
        sums.total(masked.num_masked, masked.num_real).backward()
        clip_by_global_norm(net.parameters(), config.max_grad_norm)
        set_learning_rate(optimizer, learning_rate(step, config, num_steps))
        optimizer.step()
        optimizer.zero_grad()
        generator = sums.losses["generator_loss"].sum / masked.num_masked
        discriminator = sums.losses["discriminator_loss"].sum / masked.num_real
        replaced = sums.statistics["num_replaced"] / masked.num_real
        losses.append((generator.item(), discriminator.item(), replaced.item()))
    return losses


if __name__ == "__main__":
    losses = [[round(value, 6) for value in step] for step in train()]
    json.dump(
        {"command": COMMAND, "torch": torch.__version__, "generator_discriminator_replaced": losses},
        sys.stdout,
        indent=1,
    )
    sys.stdout.write("\n")
