"""The numbers behind a search's plots: scores that compare, what they depend on, and what is best for its cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeGuard

import optuna

from pipelines.specs.space import IntDimension, LogUniformDimension, Space, UniformDimension, Value
from pipelines.specs.trial_documents import TrialSummary

MIN_TRIALS_FOR_IMPORTANCE = 4
MAX_TRIALS_FOR_IMPORTANCE = 1000
"""Some seconds of fANOVA each; with many more its trees tell no more, and the end of the search waits for them."""


class ScoredPoint(NamedTuple):
    """A trial at the rung that all trials are compared at."""

    number: int
    point: dict[str, Value]
    score: float
    is_completed: bool


class RungPoint(NamedTuple):
    """What a trial was worth for so many FLOPs."""

    number: int
    flops: float
    score: float


@dataclass(frozen=True)
class SearchFigures:
    """Of all trials but those of the final round."""

    metric: str
    mode: Literal["max", "min"]
    rung_step: int
    """At least: the budget in FLOPs gives trials of other sizes other steps."""
    scored: tuple[ScoredPoint, ...]
    """At the first rung, the only one that no scheduler keeps trials from."""
    importance: dict[str, float]
    """Share of the scores' variance that each path explains (fANOVA, Hutter et al. 2014); empty for too few trials."""
    rungs: tuple[RungPoint, ...]
    front: tuple[RungPoint, ...]
    """Rungs than which no cheaper one is as good, by FLOPs."""


def search_figures(
    trials: Sequence[TrialSummary], space: Space, metric: str, mode: Literal["max", "min"]
) -> SearchFigures:
    """What the plots show."""
    own = [one for one in trials if not one.is_final and one.rungs and _is_score(one.rungs[0].score)]
    scored = tuple(
        ScoredPoint(one.number, dict(one.point), one.rungs[0].score, one.state == "COMPLETED")
        for one in own
        if _is_score(one.rungs[0].score)
    )
    rungs = tuple(
        RungPoint(one.number, rung.flops, rung.score) for one in own for rung in one.rungs if _is_score(rung.score)
    )
    return SearchFigures(
        metric=metric,
        mode=mode,
        rung_step=min((one.rungs[0].step for one in own), default=0),
        scored=scored,
        importance=_importance(scored, space),
        rungs=rungs,
        front=_front(rungs, mode),
    )


def _is_score(score: float | None) -> TypeGuard[float]:
    return score is not None and math.isfinite(score)


def _front(rungs: Sequence[RungPoint], mode: Literal["max", "min"]) -> tuple[RungPoint, ...]:
    sign = 1.0 if mode == "max" else -1.0
    front: list[RungPoint] = []
    for rung in sorted(rungs, key=lambda one: (one.flops, -sign * one.score)):
        if not front or sign * rung.score > sign * front[-1].score:
            front.append(rung)
    return tuple(front)


def _importance(scored: Sequence[ScoredPoint], space: Space) -> dict[str, float]:
    """Of the paths that every point has: a dimension with a condition is absent from some."""
    paths = [path for path in space if all(path in one.point for one in scored)]
    if len(scored) < MIN_TRIALS_FOR_IMPORTANCE or not paths or len({one.score for one in scored}) < 2:
        return {}
    study = optuna.create_study()
    for one in scored[:: math.ceil(len(scored) / MAX_TRIALS_FOR_IMPORTANCE)]:
        study.add_trial(
            optuna.trial.create_trial(
                params={path: _placed(space[path], one.point[path]) for path in paths},
                distributions={path: _distribution(space[path]) for path in paths},
                value=one.score,
            )
        )
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {path: float(share) for path, share in found.items() if math.isfinite(share)}


def _distribution(dimension: object) -> optuna.distributions.BaseDistribution:
    match dimension:
        case IntDimension(low=low, high=high, step=step, log=log):
            return optuna.distributions.IntDistribution(low, low + (high - low) // step * step, log=log, step=step)
        case UniformDimension(low=low, high=high):
            return optuna.distributions.FloatDistribution(low, high)
        case LogUniformDimension(low=low, high=high):
            return optuna.distributions.FloatDistribution(low, high, log=True)
        case _:
            return optuna.distributions.IntDistribution(0, len(getattr(dimension, "values", ())) - 1)


def _placed(dimension: object, value: Value) -> Value:
    """Of a list of values the place: with a column for each value of two choices of twenty, as a categorical one has,
    fifty trials keep fANOVA busy for minutes, and for each further value longer by a factor.
    """
    values = getattr(dimension, "values", None)
    return value if values is None else [(type(one), one) for one in values].index((type(value), value))
