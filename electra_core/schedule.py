"""The learning rate as a function of the step."""

from __future__ import annotations

from electra_core.config import OptimizerConfig


def learning_rate(step: int, config: OptimizerConfig, num_train_steps: int) -> float:
    """Peak × (1 − step / num_train_steps) × min(1, step / warmup_steps), with steps counted from 0.

    G multiplies the two factors, so the decay runs from step 0, the peak is never quite reached, and the very first
    update has rate 0 where there is a warm-up.
    """
    decay = max(0.0, 1.0 - step / num_train_steps)
    warmup = min(1.0, step / config.warmup_steps) if config.warmup_steps > 0 else 1.0
    return config.learning_rate * decay * warmup
