"""The final round in figures: intervals and p-values against numbers that are worked out by other means."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence

import pytest

from pipelines.searching.compare import Choice, SettingRuns, compare_settings, winner_of
from pipelines.specs.space import Point
from pipelines.specs.trial_documents import SettingScores

A: Point = {"a.b": 1}
B: Point = {"a.b": 2}
Scores = Mapping[int, float]


def compared(
    mode: str = "max",
    confidence: float = 0.95,
    diverged: Mapping[str, tuple[int, ...]] | None = None,
    **by_name: Scores,
) -> dict[str, SettingScores]:
    """Settings `base`, `a` and `b`, as they come out."""
    points: dict[str, Point] = {"base": {}, "a": A, "b": B}
    lost = diverged or {}
    given = [SettingRuns(points[name], scores, 1e9, lost.get(name, ())) for name, scores in by_name.items()]
    found = compare_settings(given, "max" if mode == "max" else "min", confidence)
    names = {tuple(point.items()): name for name, point in points.items()}
    return {names[tuple(one.point.items())]: one for one in found}


def chosen(settings: Mapping[str, SettingScores], num_seeds: int = 3, confidence: float = 0.95) -> Choice:
    """What wins; something has a score."""
    choice = winner_of(tuple(settings.values()), confidence, num_seeds)
    assert choice is not None
    return choice


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values, start=1))


def one_sided_p(leads: Sequence[float]) -> float:
    """Of a t-test, by the distribution function for 1, 2 and 3 degrees of freedom, which is elementary."""
    t = statistics.fmean(leads) / (statistics.stdev(leads) / math.sqrt(len(leads)))
    match len(leads) - 1:
        case 1:
            below = 0.5 + math.atan(t) / math.pi
        case 2:
            below = 0.5 + t / (2 * math.sqrt(2 + t * t))
        case 3:
            below = 0.5 + (t / math.sqrt(3) / (1 + t * t / 3) + math.atan(t / math.sqrt(3))) / math.pi
    return 1 - below


def test_an_interval_is_the_mean_and_students_quantile_of_the_table() -> None:
    """Of three seeds at 95 %: t is 4.3027; of 1, 2 and 3 the standard error is 1 / √3."""
    base = compared(base=by_seed(1, 2, 3))["base"]
    assert base.mean == 2
    assert base.low == pytest.approx(2 - 4.30265273 / math.sqrt(3))
    assert base.high == pytest.approx(2 + 4.30265273 / math.sqrt(3))


@pytest.mark.parametrize(("confidence", "quantile"), [(0.8, 1.88561808), (0.9, 2.91998558), (0.99, 9.92484320)])
def test_more_confidence_is_a_wider_interval(confidence: float, quantile: float) -> None:
    base = compared(base=by_seed(1, 2, 3), confidence=confidence)["base"]
    assert base.high == pytest.approx(2 + quantile / math.sqrt(3))


def test_two_seeds_have_the_wide_interval_of_one_degree_of_freedom() -> None:
    base = compared(base=by_seed(1, 3))["base"]
    assert base.high == pytest.approx(2 + 12.7062047 * math.sqrt(2) / math.sqrt(2))


@pytest.mark.parametrize("num_seeds", [2, 3, 4])
def test_settings_are_held_against_the_base_seed_by_seed(num_seeds: int) -> None:
    rng = random.Random(num_seeds)
    base, a = (by_seed(*(rng.gauss(mean, 1) for _ in range(num_seeds))) for mean in (0, 0.5))
    leads = [a[seed] - base[seed] for seed in base]
    assert compared(base=base, a=a)["a"].better_than_base_p == pytest.approx(one_sided_p(leads))


def test_what_a_seed_does_to_all_settings_cancels() -> None:
    """Seeds are far apart and the lead is nearly the same on each: unpaired this would be no difference at all."""
    base, a = by_seed(0.2, 0.5, 0.8), by_seed(0.21, 0.512, 0.809)
    found = compared(base=base, a=a)
    assert found["a"].better_than_base_p == pytest.approx(one_sided_p([0.01, 0.012, 0.009]))
    assert found["a"].better_than_base_p is not None
    assert found["a"].better_than_base_p < 0.01
    assert found["a"].low is not None
    assert found["base"].mean is not None
    assert found["a"].low < found["base"].mean, "the intervals overlap all the same"


def test_seeds_are_matched_by_their_number_and_not_by_their_place() -> None:
    base, a = {1: 0.1, 2: 0.5, 3: 0.9}, {3: 0.93, 1: 0.12, 2: 0.51}
    assert compared(base=base, a=a)["a"].better_than_base_p == pytest.approx(one_sided_p([0.02, 0.01, 0.03]))


def test_p_is_multiplied_by_the_number_of_settings_and_is_at_most_one() -> None:
    base, a, b = by_seed(0.5, 0.6, 0.7), by_seed(0.6, 0.72, 0.79), by_seed(0.5, 0.61, 0.68)
    alone = compared(base=base, a=a)["a"].better_than_base_p
    both = compared(base=base, a=a, b=b)
    assert alone is not None
    assert both["a"].better_than_base_p == pytest.approx(2 * alone)
    assert both["b"].better_than_base_p == 1.0


def test_where_less_is_better_a_lower_score_leads() -> None:
    base, a = by_seed(0.7, 0.8, 0.9), by_seed(0.6, 0.71, 0.78)
    found = compared("min", base=base, a=a)
    assert list(found) == ["a", "base"]
    assert found["a"].better_than_base_p == pytest.approx(one_sided_p([0.1, 0.09, 0.12]))
    reverse = compared("max", base=base, a=a)
    assert list(reverse) == ["base", "a"]
    assert reverse["a"].better_than_base_p == pytest.approx(1 - one_sided_p([0.1, 0.09, 0.12]))


@pytest.mark.parametrize(("lead", "p"), [(0.25, 0.125), (0.0, 1.0), (-0.25, 1.0)])
def test_leads_that_are_all_the_same_are_tested_by_their_signs(lead: float, p: float) -> None:
    """Binary fractions, so that the differences are equal to the last bit; three of three signs are one of eight."""
    base = by_seed(0.5, 0.75, 0.125)
    found = compared(base=base, a=by_seed(*(value + lead for value in base.values())))
    assert found["a"].better_than_base_p == p


def test_leads_that_differ_by_rounding_alone_are_the_same() -> None:
    """0.3 - 0.1 and 0.4 - 0.2 are two numbers to a computer."""
    found = compared(base=by_seed(0.1, 0.2), a=by_seed(0.3, 0.4))
    assert found["a"].better_than_base_p == 0.25


def test_a_setting_that_fails_with_a_seed_is_not_called_better() -> None:
    base, a = by_seed(0.1, 0.2, 0.3, 0.4), {1: 0.9, 2: 0.9, 3: 0.95}
    found = compared(base=base, a=a)
    assert found["a"].better_than_base_p is None
    assert found["a"].mean == pytest.approx(statistics.fmean(a.values()))
    assert chosen(found, num_seeds=4) == Choice(found["base"], is_better=False)


def test_a_setting_that_diverged_with_a_seed_that_the_base_was_lost_with_is_not_called_better() -> None:
    """Of the seeds that both have it leads with each: it is left out of none of them."""
    base, a = {2: 0.5, 3: 0.6}, {2: 0.7, 3: 0.8001}
    found = compared(base=base, a=a, diverged={"a": (1,)})
    assert found["a"].better_than_base_p is None
    assert chosen(found) == Choice(found["base"], is_better=False)


def test_seeds_that_the_base_failed_with_are_left_out_of_the_comparison() -> None:
    base, a = {1: 0.1, 2: 0.2}, by_seed(0.4, 0.45, 0.9)
    assert compared(base=base, a=a)["a"].better_than_base_p == pytest.approx(one_sided_p([0.3, 0.25]))


def test_one_seed_has_a_mean_and_neither_interval_nor_p() -> None:
    found = compared(base={1: 0.1}, a={1: 0.4})
    assert [(one.mean, one.low, one.high, one.better_than_base_p) for one in found.values()] == [
        (0.4, None, None, None),
        (0.1, None, None, None),
    ]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_settings_without_a_score_come_last(mode: str) -> None:
    found = compared(mode, a={}, base=by_seed(0.125, 0.25), b=by_seed(0.375, 0.75))
    assert list(found)[-1] == "a"
    assert (found["a"].mean, found["a"].low, found["a"].better_than_base_p) == (None, None, None)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_settings_with_equal_means_keep_the_order_they_are_given_in(mode: str) -> None:
    scores = by_seed(0.25, 0.5)
    assert list(compared(mode, base=scores, b=scores, a=scores)) == ["base", "b", "a"]


def test_what_is_known_of_a_setting_is_passed_on() -> None:
    (found,) = compare_settings([SettingRuns({}, {7: 0.5, 3: 0.25}, 123.0, (4,))], "max", 0.95)
    assert (found.by_seed, found.flops, found.is_base) == ({"7": 0.5, "3": 0.25}, 123.0, True)
    assert found.diverged == (4,)


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_the_best_of_the_settings_that_are_better_wins(mode: str, sign: int) -> None:
    base = by_seed(*(sign * value for value in (0.5, 0.6, 0.7)))
    a = by_seed(*(sign * value for value in (0.6, 0.71, 0.80)))
    b = by_seed(*(sign * value for value in (0.7, 0.81, 0.90)))
    found = compared(mode, base=base, a=a, b=b)
    assert chosen(found) == Choice(found["b"], is_better=True)


def test_within_seed_noise_the_base_wins_though_its_mean_is_lower() -> None:
    base, a = by_seed(0.5, 0.6, 0.7), by_seed(0.9, 0.5, 0.75)
    found = compared(base=base, a=a)
    assert list(found) == ["a", "base"]
    assert chosen(found) == Choice(found["base"], is_better=False)


def test_a_higher_mean_that_may_be_noise_gives_way_to_a_lower_one_that_is_not() -> None:
    base, a, b = by_seed(0.5, 0.6, 0.7), by_seed(0.9, 0.6, 1.0), by_seed(0.6, 0.71, 0.80)
    found = compared(base=base, a=a, b=b)
    assert next(iter(found)) == "a"
    assert chosen(found) == Choice(found["b"], is_better=True)


@pytest.mark.parametrize("base", [{}, {1: 0.9}, {2: 0.9, 3: 0.9}])
def test_a_base_that_diverges_with_a_seed_loses_to_the_best_setting_that_does_not(base: Scores) -> None:
    a, b = by_seed(0.2, 0.3, 0.4), {1: 0.8, 2: 0.9}
    diverged = {"base": tuple({1, 2, 3} - base.keys()), "b": (3,)}
    found = compared(base=base, b=b, a=a, diverged=diverged)
    assert chosen(found) == Choice(found["a"], is_better=True, has_base_diverged=True)


def test_a_base_that_diverges_as_all_others_do_is_kept() -> None:
    found = compared(base=by_seed(0.1, 0.2), a={1: 0.8, 3: 0.9}, diverged={"base": (3,), "a": (2,)})
    assert chosen(found) == Choice(found["base"], is_better=False)


def test_of_settings_that_all_diverge_one_that_has_a_score_is_taken() -> None:
    found = compared(base={}, a={1: 0.9}, b={1: 0.2, 2: 0.3}, diverged={"base": (1, 2, 3), "a": (2, 3), "b": (3,)})
    assert chosen(found) == Choice(found["b"], is_better=True, has_base_diverged=True)


def test_a_training_of_the_base_that_was_lost_is_nothing_against_it() -> None:
    """A node that broke says nothing of the base: it is held against what has its other seeds."""
    found = compared(base={2: 0.9, 3: 0.8}, a=by_seed(0.2, 0.3, 0.4))
    assert chosen(found) == Choice(found["base"], is_better=False)
    found = compared(base={2: 0.5, 3: 0.6}, a=by_seed(0.2, 0.6, 0.7001))
    assert chosen(found).setting.point == A, "by the test over the two seeds they share"


def test_without_any_score_of_the_base_a_setting_is_taken_and_not_called_better() -> None:
    found = compared(base={}, a=by_seed(0.2, 0.3, 0.4))
    assert chosen(found) == Choice(found["a"], is_better=False)


def test_the_confidence_that_is_asked_for_decides() -> None:
    base, a = by_seed(0.5, 0.6, 0.7), by_seed(0.6, 0.75, 0.78)
    found = compared(base=base, a=a)
    p = found["a"].better_than_base_p
    assert p is not None
    assert chosen(found, confidence=1 - p - 1e-6).is_better
    assert not chosen(found, confidence=1 - p + 1e-6).is_better


def test_where_nothing_has_a_score_nothing_wins() -> None:
    assert winner_of(tuple(compared(base={}, a={}).values()), 0.95, 3) is None


def test_chance_alone_is_called_better_as_seldom_as_was_asked() -> None:
    """500 final rounds of five settings that are all the base: Bonferroni keeps false winners below one in twenty.

    25 are expected at most; 40 would be three standard deviations above.
    """
    rng = random.Random(0)
    num_false = 0
    for _ in range(500):
        given = [
            SettingRuns({} if k == 0 else {"a.b": k}, by_seed(*(rng.gauss(0, 1) for _ in range(3))), 1.0)
            for k in range(6)
        ]
        choice = winner_of(compare_settings(given, "max", 0.95), 0.95, 3)
        assert choice is not None
        num_false += choice.is_better
    assert 5 < num_false < 40
