"""Every objective: the same losses as ever, and the same twice."""

import json
from pathlib import Path

import pytest
from golden_objectives import train
from objective_table import ALL

GOLDEN = Path(__file__).parents[1] / "golden" / "objective_losses.json"


@pytest.mark.parametrize("name", ALL)
def test_losses_are_the_golden_ones(name):
    for step, (losses, golden) in enumerate(
        zip(train(name), json.loads(GOLDEN.read_text())["losses"][name], strict=True)
    ):
        # Rounding differs between processors and grows from step to step.
        assert losses == pytest.approx(golden, rel=2e-3, abs=1e-5), f"step {step}"


@pytest.mark.parametrize("name", ALL)
def test_the_same_run_twice_is_bit_for_bit_the_same(name):
    assert train(name, 4) == train(name, 4)
