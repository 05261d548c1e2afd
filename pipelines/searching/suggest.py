"""Which point is tried next: a grid's in order, or what Optuna proposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Protocol

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState as OptunaState

from pipelines.searching.untried import Untried
from pipelines.specs.search import SearcherSpec, SearchSpec
from pipelines.specs.space import (
    ChoiceDimension,
    IntDimension,
    LogUniformDimension,
    Point,
    Space,
    UniformDimension,
    Value,
    counts,
    grid_points,
    in_order,
)

Ending = Literal["COMPLETED", "STOPPED", "FAILED", "INVALID"]
"""How a point ended: FAILED says nothing of it, INVALID that there is none like it."""
STUCK_REPEATS = 20
"""Points in a row that were tried before, after which a sampler that learns is not asked any more for this one: what it
believes in it proposes again and again, for a repeat is no news to it."""


class Proposal(NamedTuple):
    """A point that is to be tried."""

    token: Any
    """For what follows."""
    point: dict[str, Value]
    seed: int | None = None
    """Of pretraining; the base's when None."""


class Proposer(Protocol):
    """Chooses points, and hears what became of them."""

    is_finite: bool
    """Whether there are no more at some time; else points come again for ever."""

    def next(self, num_repeats: int = 0) -> Proposal | None:
        """The next point; None when there are no more.

        Args:
            num_repeats: proposals right before this one whose points had been tried.
        """
        ...

    def again(self, point: Point) -> Any:
        """A token for a point that an earlier attempt chose."""
        ...

    def reached(self, token: Any, rung: int, score: float) -> None:
        """The point was scored."""
        ...

    def ended(self, token: Any, score: float | None, how: Ending) -> None:
        """Nothing more will come of it. A score of None is the worst there is."""
        ...


def proposer_of(search: SearchSpec, mode: Literal["max", "min"], num_known: int = 0) -> Proposer:
    """What the spec asks for, where so many points were chosen before."""
    if search.searcher.type == "grid":
        return ListProposer(Proposal(None, point) for point in grid_points(search.space))
    return OptunaProposer(search.space, search.searcher, mode, num_known)


class ListProposer:
    """Points that are known, in order; it learns nothing."""

    is_finite = True

    def __init__(self, proposals: Iterable[Proposal]) -> None:
        self._proposals = iter(proposals)

    def next(self, num_repeats: int = 0) -> Proposal | None:
        """The next one."""
        return next(self._proposals, None)

    def again(self, point: Point) -> None:
        """Nothing to remember."""

    def reached(self, token: None, rung: int, score: float) -> None:
        """Nothing to learn."""

    def ended(self, token: None, score: float | None, how: str) -> None:
        """Nothing to learn."""


class OptunaProposer:
    """Random search, the tree-structured Parzen estimator, or CMA-ES, as Optuna has them.

    A dimension that does not count beside the values of others is not asked for: the estimator then learns of each
    dimension from the points that had it.

    Args:
        space: of the search.
        searcher: which, and its seed.
        mode: whether more of a score is better.
        num_known: points that an earlier attempt chose: with its seed alone they would be proposed once more.
    """

    is_finite = False

    def __init__(self, space: Space, searcher: SearcherSpec, mode: Literal["max", "min"], num_known: int = 0) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        direction = StudyDirection.MAXIMIZE if mode == "max" else StudyDirection.MINIMIZE
        seed = searcher.seed + num_known
        # With the same seed it would draw the sampler's own first points once more.
        self._sampler, self._random = _sampler(searcher, seed), RandomSampler(seed + 2**31)
        self._study = optuna.create_study(direction=direction, sampler=self._sampler)
        self._untried = Untried(space, seed)
        self._scores: dict[int, dict[int, float]] = {}
        """By number of the trial and rung, of those that have not ended."""

    def next(self, num_repeats: int = 0) -> Proposal | None:
        """What is proposed now: by the sampler, or where it is stuck any point that is left.

        Of a space with more points than can be listed that is a random one, and there is always another.
        """
        is_stuck = num_repeats >= STUCK_REPEATS
        if is_stuck and self._untried.is_listed:
            point = self._untried.draw()
            return None if point is None else Proposal(self.again(point), point)
        self._study.sampler = self._random if is_stuck else self._sampler
        trial = self._study.ask()
        point = self._point(trial)
        self._study.sampler = self._sampler
        return Proposal(trial, point)

    def again(self, point: Point) -> optuna.Trial:
        """A trial of this very point."""
        self._study.enqueue_trial(dict(point))
        trial = self._study.ask()
        self._point(trial)
        return trial

    def reached(self, token: optuna.Trial, rung: int, score: float) -> None:
        """Remember a score on the way: Optuna looks at those of trials that have ended, and forgets none."""
        self._scores.setdefault(token.number, {})[rung] = score

    def ended(self, token: optuna.Trial, score: float | None, how: Ending) -> None:
        """Tell of the end: one that was stopped counts by how far it came, one without a score as the worst."""
        scores = self._scores.pop(token.number, {})
        if score is not None:
            # Of trials that were stopped the sampler takes one that was never scored for the worst, and one that
            # diverged must not stand above them for what it was before that.
            for rung, reached in scores.items():
                token.report(reached, rung)
        if how == "FAILED":
            self._study.tell(token, state=OptunaState.FAIL)
        elif how == "COMPLETED" and score is not None and math.isfinite(score):
            self._study.tell(token, score)
        else:
            self._study.tell(token, state=OptunaState.PRUNED)

    def _point(self, trial: optuna.Trial) -> dict[str, Value]:
        point: dict[str, Value] = {}
        for path in in_order(self._space):
            dimension = self._space[path]
            if counts(dimension, point):
                point[path] = _suggested(trial, path, dimension)
        self._untried.note(point)
        return point


def _sampler(searcher: SearcherSpec, seed: int) -> BaseSampler:
    make: dict[str, Callable[[], BaseSampler]] = {
        "random": lambda: RandomSampler(seed),
        "cma": lambda: CmaEsSampler(n_startup_trials=searcher.num_startup_trials, seed=seed),
        "tpe": lambda: TPESampler(
            n_startup_trials=searcher.num_startup_trials,
            seed=seed,
            constant_liar=True,  # trials run side by side: what runs already is not proposed again
        ),
    }
    return make[searcher.type]()


def _suggested(trial: optuna.Trial, path: str, dimension: Any) -> Value:
    match dimension:
        case ChoiceDimension():
            chosen: Value = trial.suggest_categorical(path, dimension.values)
            return chosen
        case IntDimension(low=low, high=high, step=step, log=log):
            return trial.suggest_int(path, low, low + (high - low) // step * step, step=step, log=log)
        case UniformDimension(low=low, high=high):
            return trial.suggest_float(path, low, high)
        case LogUniformDimension(low=low, high=high):
            return trial.suggest_float(path, low, high, log=True)
    raise ValueError(f"dimension must be one of a space, got {dimension!r}")
