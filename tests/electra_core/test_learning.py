"""Training: the same losses as ever, the same twice, and a small batch can be learned by heart."""

import json
from pathlib import Path

import pytest
from golden_losses import train

GOLDEN = Path(__file__).parents[1] / "golden" / "electra_losses.json"


def test_losses_are_the_golden_ones():
    expected = json.loads(GOLDEN.read_text())["generator_discriminator"]
    for step, (pair, golden) in enumerate(zip(train(), expected, strict=True)):
        # Rounding differs between processors and grows from step to step.
        assert pair == pytest.approx(golden, rel=2e-3), f"step {step}"


def test_the_same_run_twice_is_bit_for_bit_the_same():
    assert train(8) == train(8)


def test_a_small_batch_is_learned_by_heart():
    losses = train(400, dropout=0.0, learning_rate=5e-3)
    first, last = losses[0], [sum(column) / 20 for column in zip(*losses[-20:], strict=True)]
    assert last[0] < 0.5 < first[0]
    assert last[1] < 0.5 * first[1]
