"""Schedules at points computed by hand. The linear one is in test_optimizer, beside what G computes."""

import pytest

from electra_core.config import OptimizerConfig
from electra_core.schedule import learning_rate

PEAK = 0.01


def rates(steps, num_train_steps=100, **fields):
    config = OptimizerConfig(learning_rate=PEAK, **fields)
    return [learning_rate(step, config, num_train_steps) / PEAK for step in steps]


def test_cosine_falls_by_half_in_the_middle_of_what_follows_the_warm_up():
    # 90 steps after the warm-up: cos 0, cos 60°, cos 90°, cos 120°, cos 180°.
    assert rates([10, 40, 55, 70, 100], schedule="cosine", warmup_steps=10) == pytest.approx([1, 0.75, 0.5, 0.25, 0])


def test_cosine_ends_at_its_floor():
    steps, fields = [0, 50, 100, 120], {"schedule": "cosine", "warmup_steps": 0, "final_rate_fraction": 0.1}
    assert rates(steps, **fields) == pytest.approx([1, 0.55, 0.1, 0.1])


def test_warmup_stable_decay_has_three_parts():
    fields = {"schedule": "warmup_stable_decay", "warmup_steps": 10, "decay_fraction": 0.4, "final_rate_fraction": 0.2}
    assert rates([0, 5, 10, 35, 60, 70, 80, 100], **fields) == pytest.approx([0, 0.5, 1, 1, 1, 0.8, 0.6, 0.2])


def test_a_fifth_of_the_steps_decays_by_default():
    fields = {"schedule": "warmup_stable_decay", "warmup_steps": 0}
    assert rates([79, 80, 90, 100], **fields) == pytest.approx([1, 1, 0.5, 0])


@pytest.mark.parametrize("schedule", ["cosine", "warmup_stable_decay"])
def test_the_warm_up_is_a_line_from_zero(schedule):
    assert rates([0, 1, 5, 9], schedule=schedule, warmup_steps=10) == pytest.approx([0, 0.1, 0.5, 0.9])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"final_rate_fraction": 0.1}, "final_rate_fraction must be 0 where schedule is linear.* got 0.1"),
        ({"decay_fraction": 0.1}, "decay_fraction must be absent unless .*, got 0.1 and linear"),
        ({"schedule": "cosine", "decay_fraction": 0.3}, "decay_fraction must be absent unless .*, got 0.3 and cosine"),
        ({"muon_learning_rate": 0.02}, "muon_learning_rate must be absent unless name is muon, got 0.02 and"),
        ({"layerwise_decay": 1.5}, "layerwise_decay"),
        ({"discriminator_learning_rate_ratio": 0}, "discriminator_learning_rate_ratio"),
    ],
)
def test_a_field_without_use_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**fields)
