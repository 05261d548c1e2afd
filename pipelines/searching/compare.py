"""The final round in figures: is any setting better than the base by more than seeds alone make a difference?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from scipy import stats

from pipelines.specs.space import Point
from pipelines.specs.trial_documents import SettingScores

_EQUAL = 1e-9
"""Spread of leads, as a share of their size, that is nothing but rounding."""


class SettingRuns(NamedTuple):
    """The trainings of one setting, with several seeds."""

    point: Point
    """Empty for the base."""
    by_seed: Mapping[int, float]
    """Scores. A seed whose training diverged or failed is absent."""
    flops: float
    """Of one training."""
    diverged: tuple[int, ...] = ()
    """Seeds with which a loss was not finite."""


class Choice(NamedTuple):
    """What is taken after the final round."""

    setting: SettingScores
    is_better: bool
    """Than the base, by more than seed noise."""
    has_base_diverged: bool = False
    """Which is why the setting is taken: no test says so."""


def compare_settings(
    runs: Sequence[SettingRuns],
    mode: Literal["max", "min"],
    confidence: float,
) -> tuple[SettingScores, ...]:
    """Means over seeds with their intervals, each setting held against the base.

    Settings share their seeds, and with these the order of the data and every mask, so they are compared seed by seed:
    what a seed does to all of them cancels.

    Args:
        runs: of each setting, the base among them.
        mode: whether more is better.
        confidence: of the intervals, below 1.

    Returns:
        The best mean first; settings without a score last.
    """
    base = next((one.by_seed for one in runs if not one.point), {})
    num_tested = sum(bool(one.point) for one in runs)
    settings = []
    for point, by_seed, flops, diverged in runs:
        values = list(by_seed.values())
        half = _half_width(values, confidence)
        mean = statistics.fmean(values) if values else None
        settings.append(
            SettingScores(
                point=dict(point),
                is_base=not point,
                by_seed={str(seed): value for seed, value in by_seed.items()},
                diverged=diverged,
                mean=mean,
                low=None if mean is None or half is None else mean - half,
                high=None if mean is None or half is None else mean + half,
                flops=flops,
                # One that diverged with a seed is not called better for the seeds that are left.
                better_than_base_p=_lead_p(by_seed, base, mode, num_tested) if point and not diverged else None,
            )
        )
    sign = -1.0 if mode == "max" else 1.0
    return tuple(sorted(settings, key=lambda one: math.inf if one.mean is None else sign * one.mean))


def winner_of(settings: Sequence[SettingScores], confidence: float, num_seeds: int) -> Choice | None:
    """The setting to take: the best of those that are better than the base by more than seed noise, else the base.

    A base that diverged with some seed is worse than any setting that came to a score with all: that is no matter of
    noise. A training that was lost for another reason says nothing of its setting.

    Args:
        settings: as `compare_settings` gives them, the best mean first.
        confidence: below 1.
        num_seeds: of the final round.

    Returns:
        None where no training came to a score.
    """
    base = next((one for one in settings if one.is_base), None)
    scored = [one for one in settings if one.mean is not None]
    has_diverged = base is not None and bool(base.diverged)
    whole = [one for one in scored if not one.is_base and len(one.by_seed) == num_seeds]
    if has_diverged and whole:
        return Choice(whole[0], is_better=True, has_base_diverged=True)
    better = [one for one in scored if one.better_than_base_p is not None and one.better_than_base_p <= 1 - confidence]
    if better:
        return Choice(better[0], is_better=True)
    if base is not None and base.mean is not None:
        return Choice(base, is_better=False)
    if not scored:
        return None
    most = max(len(one.by_seed) for one in scored)
    found = next(one for one in scored if len(one.by_seed) == most)
    return Choice(found, is_better=has_diverged, has_base_diverged=has_diverged)


def best_of_study(settings: Sequence[SettingScores]) -> SettingScores | None:
    """The best mean of those that diverged with no seed: of one that did, only what went well has a score.

    Args:
        settings: as `compare_settings` gives them, the best mean first.

    Returns:
        None where no training came to a score.
    """
    scored = [one for one in settings if one.mean is not None]
    return next((one for one in scored if not one.diverged), scored[0] if scored else None)


def _half_width(values: Sequence[float], confidence: float) -> float | None:
    """Of the t interval of a mean."""
    if len(values) < 2:
        return None
    error = statistics.stdev(values) / math.sqrt(len(values))
    return float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error


def _lead_p(
    by_seed: Mapping[int, float], base: Mapping[int, float], mode: Literal["max", "min"], num_tested: int
) -> float | None:
    sign = 1.0 if mode == "max" else -1.0
    leads = [sign * (by_seed[seed] - base[seed]) for seed in by_seed if seed in base]
    if len(leads) < 2 or len(leads) < len(base):
        return None  # nor is one that was lost with a seed that the base has
    if statistics.stdev(leads) <= _EQUAL * max(map(abs, leads)):
        # Equal leads, as coarse scores give them, have no spread to test with: the sign test is what is left.
        p = 0.5 ** len(leads) if leads[0] > 0 else 1.0
    else:
        p = float(stats.ttest_1samp(leads, 0.0, alternative="greater").pvalue)
    return min(1.0, p * num_tested)
