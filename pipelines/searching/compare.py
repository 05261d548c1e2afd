"""The final round in figures: is any setting better than the base by more than seeds alone make a difference?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from scipy import stats

from pipelines.specs.space import Point
from pipelines.specs.trial_documents import SettingScores

_EQUAL = 1e-9
"""Spread of leads, as a share of their size, that is nothing but rounding."""


def compare_settings(
    scores: Sequence[tuple[Point, Mapping[int, float], float]],
    mode: Literal["max", "min"],
    confidence: float,
) -> tuple[SettingScores, ...]:
    """Means over seeds with their intervals, each setting held against the base.

    Settings share their seeds, and with these the order of the data and every mask, so they are compared seed by seed:
    what a seed does to all of them cancels.

    Args:
        scores: of each setting its point, empty for the base, its score by seed, and the FLOPs of one training. A seed
            without a score (the loss was not finite) is absent.
        mode: whether more is better.
        confidence: of the intervals, below 1.

    Returns:
        The best mean first; settings without a score last.
    """
    base = next((by_seed for point, by_seed, _ in scores if not point), {})
    num_tested = sum(bool(point) for point, _, _ in scores)
    settings = []
    for point, by_seed, flops in scores:
        values = list(by_seed.values())
        half = _half_width(values, confidence)
        mean = statistics.fmean(values) if values else None
        settings.append(
            SettingScores(
                point=dict(point),
                is_base=not point,
                by_seed={str(seed): value for seed, value in by_seed.items()},
                mean=mean,
                low=None if mean is None or half is None else mean - half,
                high=None if mean is None or half is None else mean + half,
                flops=flops,
                better_than_base_p=_lead_p(by_seed, base, mode, num_tested) if point else None,
            )
        )
    sign = -1.0 if mode == "max" else 1.0
    return tuple(sorted(settings, key=lambda one: math.inf if one.mean is None else sign * one.mean))


def winner_of(settings: Sequence[SettingScores], confidence: float) -> tuple[SettingScores | None, bool]:
    """The setting to take, and whether it is better than the base by more than seed noise: else it is the base.

    A base that came to no score with some seed is worse than any setting that did with all: that is no matter of noise.
    """
    base = next((one for one in settings if one.is_base), None)
    most = max((len(one.by_seed) for one in settings), default=0)
    if base is None or len(base.by_seed) < most:
        whole = [one for one in settings if not one.is_base and len(one.by_seed) == most]
        return (whole[0], True) if whole else (None, False)
    better = [
        one
        for one in settings
        if one.better_than_base_p is not None and one.better_than_base_p <= 1 - confidence and one.mean is not None
    ]
    if better:
        return better[0], True
    return (base, False) if base.mean is not None else (None, False)


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
        return None  # a setting that fails with a seed is not called better for those that are left
    if statistics.stdev(leads) <= _EQUAL * max(map(abs, leads)):
        # Equal leads, as coarse scores give them, have no spread to test with: the sign test is what is left.
        p = 0.5 ** len(leads) if leads[0] > 0 else 1.0
    else:
        p = float(stats.ttest_1samp(leads, 0.0, alternative="greater").pvalue)
    return min(1.0, p * num_tested)
