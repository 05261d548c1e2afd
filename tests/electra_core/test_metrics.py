"""Figures from sums."""

import math

import pytest

from electra_core.metrics import binary_entropy, figures

SUMS = {
    "generator_loss": 50.0,
    "discriminator_loss": 30.0,
    "generator_loss_positions": 20.0,
    "discriminator_loss_positions": 100.0,
    "num_scored": 100.0,
    "generator_correct": 5.0,
    "generator_correct_positions": 20.0,
    "num_replaced": 10.0,
    "discriminator_true_positives": 6.0,
    "discriminator_false_positives": 2.0,
    "discriminator_correct": 94.0,
}


def test_figures_are_the_definitions():
    assert figures(SUMS) == pytest.approx(
        {
            "generator_loss": 2.5,
            "generator_accuracy": 0.25,
            "discriminator_loss": 0.3,
            "discriminator_accuracy": 0.94,
            "discriminator_precision": 0.75,
            "discriminator_recall": 0.6,
            "discriminator_f1": 2 * 0.75 * 0.6 / (0.75 + 0.6),
            "replaced_fraction": 0.1,
            "discriminator_loss_floor": -0.1 * math.log(0.1) - 0.9 * math.log(0.9),
        }
    )


def test_a_share_of_nothing_is_zero():
    assert set(figures(dict.fromkeys(SUMS, 0.0)).values()) == {0.0}


def test_what_an_objective_lacks_has_no_figure():
    assert figures({"mlm_loss": 6.0, "mlm_loss_positions": 3.0, "mlm_correct": 1.0, "mlm_correct_positions": 4.0}) == {
        "mlm_loss": 2.0, "mlm_accuracy": 0.25}  # fmt: skip


def test_entropy_is_largest_at_one_half():
    assert binary_entropy(0.5) == pytest.approx(math.log(2))
    assert binary_entropy(0.0) == binary_entropy(1.0) == 0.0
