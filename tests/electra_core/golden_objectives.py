"""Twenty CPU losses of every objective. A change that should not change the computation keeps them.

python tests/electra_core/golden_objectives.py > tests/golden/objective_losses.json
"""

from __future__ import annotations

import json
import sys

import torch
from objective_table import ALL, build, masked
from tiny import draws, token_batch

from electra_core.config import OptimizerConfig
from electra_core.optimizer import clip_by_global_norm, make_optimizer, set_learning_rate
from electra_core.schedule import learning_rate

COMMAND = "python tests/electra_core/golden_objectives.py > tests/golden/objective_losses.json"
NUM_STEPS = 20


def train(name: str, num_steps: int = NUM_STEPS) -> list[dict[str, float]]:
    """Means of all losses at each step, on the same four rows; `two_stage` switches half-way."""
    objective = ALL[name]
    net = build(name, is_shaken=False, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    net.requires_grad_(True)
    config = OptimizerConfig(learning_rate=3e-3, warmup_steps=5)
    optimizer = make_optimizer(net, config)
    rows, steps = token_batch(padded=True), []
    for step in range(num_steps):
        if step in objective.stage_starts(num_steps):
            net.enter_stage(objective.stage_at(step, num_steps), is_start=True)
        batch = masked(rows, name, step=step)
        sums = net(batch, draws(batch, step))
        sums.total(batch.num_masked, batch.num_real).backward()
        clip_by_global_norm(net.parameters(), config.max_grad_norm)
        set_learning_rate(optimizer, learning_rate(step, config, num_steps))
        optimizer.step()
        optimizer.zero_grad()
        steps.append({key: (loss.sum / loss.positions).item() for key, loss in sums.losses.items()})
    return steps


if __name__ == "__main__":
    losses = {name: [{k: round(v, 6) for k, v in step.items()} for step in train(name)] for name in ALL}
    json.dump({"command": COMMAND, "torch": torch.__version__, "losses": losses}, sys.stdout, indent=1)
    sys.stdout.write("\n")
