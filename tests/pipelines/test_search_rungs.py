"""Where trials are scored: shares of a budget, and the steps these are."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.searching.rungs import rung_shares, rung_steps
from pipelines.specs.search import AshaScheduler, HyperbandScheduler, MedianStoppingScheduler, NoScheduler


def test_without_a_scheduler_a_trial_is_scored_at_its_end() -> None:
    assert rung_shares(NoScheduler()) == (1.0,)


@pytest.mark.parametrize(
    ("lowest", "factor", "expected"),
    [
        (1 / 9, 3, (1 / 9, 1 / 3, 1)),
        (1 / 27, 3, (1 / 27, 1 / 9, 1 / 3, 1)),
        (1 / 8, 2, (1 / 8, 1 / 4, 1 / 2, 1)),
        (0.1, 4, (0.1, 0.4, 1)),
        (0.1, 10, (0.1, 1)),
        (0.5, 3, (0.5, 1)),
    ],
)
def test_each_rung_is_a_factor_further_and_the_last_is_the_end(
    lowest: float, factor: float, expected: tuple[float, ...]
) -> None:
    """Where a product of factors comes out as the whole budget, there is one rung there and not two."""
    scheduler = AshaScheduler(min_fraction=lowest, reduction_factor=factor)
    assert rung_shares(scheduler) == pytest.approx(expected, rel=1e-12)


def test_hyperbands_trials_are_scored_at_the_rungs_of_its_hardest_bracket() -> None:
    scheduler = HyperbandScheduler(min_fraction=1 / 27, reduction_factor=3, num_brackets=3)
    assert rung_shares(scheduler) == rung_shares(AshaScheduler(min_fraction=1 / 27, reduction_factor=3))


def test_rungs_of_median_stopping_are_evenly_apart() -> None:
    assert rung_shares(MedianStoppingScheduler(num_rungs=4)) == (0.25, 0.5, 0.75, 1.0)


@given(st.floats(0.001, 0.999), st.floats(1.5, 10))
def test_shares_rise_from_the_lowest_to_one(lowest: float, factor: float) -> None:
    shares = rung_shares(AshaScheduler(min_fraction=lowest, reduction_factor=factor))
    assert shares[0] == lowest
    assert shares[-1] == 1.0
    assert all(before < after for before, after in pairwise(shares))


@given(st.integers(2, 27), st.integers(1, 10_000))
def test_a_rung_is_the_first_step_by_which_its_share_is_spent(parts: int, num_train_steps: int) -> None:
    """Exactly, by fractions: a share of 1/9 of 900 steps is step 100, though 1/9 is no number of a computer."""
    shares = tuple(k / parts for k in range(1, parts + 1))
    exact = [Fraction(k, parts) * num_train_steps for k in range(1, parts + 1)]
    assert rung_steps(shares, num_train_steps) == tuple(-(-step.numerator // step.denominator) for step in exact)


def test_a_short_trial_may_have_one_step_for_two_shares() -> None:
    assert rung_steps((0.01, 0.02, 1.0), 50) == (1, 1, 50)
