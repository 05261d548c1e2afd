"""Training: the same losses as ever, the same twice, and a small batch can be learned by heart."""

import json
from pathlib import Path

import pytest
from golden_losses import train

from electra_core.metrics import binary_entropy

GOLDEN = Path(__file__).parents[1] / "golden" / "electra_losses.json"


def test_losses_are_the_golden_ones():
    expected = json.loads(GOLDEN.read_text())["generator_discriminator_replaced"]
    for step, (losses, golden) in enumerate(zip(train(), expected, strict=True)):
        # Rounding differs between processors and grows from step to step.
        assert losses == pytest.approx(golden, rel=2e-3), f"step {step}"


def test_the_same_run_twice_is_bit_for_bit_the_same():
    assert train(8) == train(8)


def test_a_small_batch_is_learned_by_heart():
    """With other positions masked at each step: the generator must know all tokens, the discriminator tell them."""
    losses = train(1000, dropout=0.0, learning_rate=2e-3)
    assert mean(losses[-100:], 0) < 0.1 * losses[0][0]
    # While the generator still errs, since a perfect one leaves nothing to detect.
    halfway = losses[500:600]
    assert mean(halfway, 2) > 0.02
    assert mean(halfway, 1) < 0.5 * binary_entropy(mean(halfway, 2))


def mean(losses, column):
    return sum(step[column] for step in losses) / len(losses)
