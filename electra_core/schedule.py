"""The learning rate as a function of the step. N is `num_train_steps`; steps count from 0."""

from __future__ import annotations

import math

from electra_core.config import OptimizerConfig


def learning_rate(step: int, config: OptimizerConfig, num_train_steps: int) -> float:
    """Rate of a step under the schedule `config.schedule`."""
    match config.schedule:
        case "linear":
            return linear(step, config, num_train_steps)
        case "cosine":
            return cosine(step, config, num_train_steps)
        case "warmup_stable_decay":
            return warmup_stable_decay(step, config, num_train_steps)


def linear(step: int, config: OptimizerConfig, num_train_steps: int) -> float:
    """Peak × (1 − step / N) × min(1, step / warmup_steps).

    G multiplies the two factors, so the decay runs from step 0, the peak is never quite reached, and the very first
    update has rate 0 where there is a warm-up.
    """
    decay = max(0.0, 1.0 - step / num_train_steps)
    return config.learning_rate * decay * _warmup(step, config)


def cosine(step: int, config: OptimizerConfig, num_train_steps: int) -> float:
    """Peak × step / warmup_steps, then peak × (f + (1 − f) · ½(1 + cos πx)), x the share of the other steps done.

    f is `final_rate_fraction`. Source: Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts.
    """
    done = (step - config.warmup_steps) / (num_train_steps - config.warmup_steps)
    height = 0.5 * (1.0 + math.cos(math.pi * min(max(done, 0.0), 1.0)))
    return config.learning_rate * _warmup(step, config) * _above_floor(height, config)


def warmup_stable_decay(step: int, config: OptimizerConfig, num_train_steps: int) -> float:
    """Peak × step / warmup_steps, then the peak, then over the last `decay_steps` a line down to f × peak.

    f is `final_rate_fraction`. Source: Hu et al. 2024 (MiniCPM), arXiv:2404.06395, section 4.
    """
    height = min(1.0, max(0.0, (num_train_steps - step) / config.decay_steps(num_train_steps)))
    return config.learning_rate * _warmup(step, config) * _above_floor(height, config)


def _warmup(step: int, config: OptimizerConfig) -> float:
    return min(1.0, step / config.warmup_steps) if config.warmup_steps > 0 else 1.0


def _above_floor(height: float, config: OptimizerConfig) -> float:
    return config.final_rate_fraction + (1.0 - config.final_rate_fraction) * height
