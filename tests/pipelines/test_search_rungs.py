"""Where trials are scored: shares of a budget, and the steps these are; and who goes on from there."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.searching.rungs import rung_shares, rung_steps
from pipelines.searching.schedulers import scheduler_of
from pipelines.specs.search import AshaScheduler, HyperbandScheduler, MedianStoppingScheduler, NoScheduler, Scheduler


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


# --- who goes on


class Told:
    """A scheduler, told of scores as Ray Tune tells of them; more is better."""

    def __init__(self, spec: Scheduler) -> None:
        self._shares = rung_shares(spec)
        self._scheduler = scheduler_of(spec, seed=0)
        self._scheduler.set_search_properties("score", "max")
        self._num_launches = 0

    def launched(self, number: int) -> Any:
        """A trial as Ray Tune knows it: after a loss it has another name."""
        self._num_launches += 1
        trial = SimpleNamespace(trial_id=f"launch-{self._num_launches}", config={"number": number})
        self._scheduler.on_trial_add(None, trial)
        return trial

    def goes_on(self, trial: Any, rung: int, score: float) -> bool:
        return self._scheduler.on_trial_result(None, trial, self._result(trial, rung, score)) == "CONTINUE"

    def complete(self, trial: Any, rung: int, score: float) -> None:
        self._scheduler.on_trial_complete(None, trial, self._result(trial, rung, score))

    def _result(self, trial: Any, rung: int, score: float) -> dict[str, Any]:
        return {"number": trial.config["number"], "rung": rung, "share": self._shares[rung], "score": score}


HALVING = AshaScheduler(min_fraction=1 / 9, reduction_factor=3)
MEDIAN = MedianStoppingScheduler(num_rungs=4, min_trials=1, grace_fraction=0.25)


def test_a_later_score_of_a_trial_that_was_lost_is_none_of_the_first_rung() -> None:
    """There are 0.5 and 0.6 in the first rung, and the 0.9 is not held against the second."""
    told = Told(HALVING)
    assert told.goes_on(told.launched(0), 0, 0.5)
    again = told.launched(0)
    assert told.goes_on(again, 0, 0.5)
    assert told.goes_on(again, 1, 0.9)
    told.complete(again, 1, 0.9)
    assert told.goes_on(told.launched(1), 0, 0.6)


def test_halving_stops_what_is_not_among_the_best() -> None:
    told = Told(HALVING)
    assert told.goes_on(told.launched(0), 0, 0.5)
    assert not told.goes_on(told.launched(1), 0, 0.4)


def test_the_median_knows_what_a_trial_scored_before_it_was_lost() -> None:
    told = Told(MEDIAN)
    assert told.goes_on(told.launched(0), 0, 0.0)
    again = told.launched(0)
    assert told.goes_on(again, 0, 0.0)
    assert told.goes_on(again, 1, 1.0)
    other = told.launched(1)
    assert told.goes_on(other, 0, 0.6)
    assert told.goes_on(other, 1, 0.6), "the mean of 0 and 1 is less"


def test_the_score_that_a_trial_ends_with_counts_once_for_the_median() -> None:
    told = Told(MEDIAN)
    first, second = told.launched(0), told.launched(1)
    assert told.goes_on(first, 0, 0.0)
    assert told.goes_on(first, 1, 0.9)
    told.complete(first, 1, 0.9)
    assert told.goes_on(second, 0, 0.5)
    assert told.goes_on(second, 1, 0.5), "the mean of 0 and 0.9 is less, that of 0, 0.9 and 0.9 is more"


def test_a_last_score_that_was_not_told_before_counts() -> None:
    """A trial that ends by itself is told of at its end alone."""
    told = Told(MEDIAN)
    first, second = told.launched(0), told.launched(1)
    assert told.goes_on(first, 0, 0.9)
    told.complete(first, 1, 0.9)
    assert not told.goes_on(second, 1, 0.5)
