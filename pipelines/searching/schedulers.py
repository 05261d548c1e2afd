"""Ray Tune's schedulers, with time as the share of the budget that is spent, and decisions that are made once.

After a restart all scores are told again, in another order, and a scheduler would decide otherwise than before: it
would stop what it had let go on. So of what is known it only hears, and it decides on what is new. It knows trials by
our numbers: Ray Tune gives one that was lost another name, under which its earlier scores would be unknown.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler

from pipelines.specs.search import AshaScheduler, HyperbandScheduler, MedianStoppingScheduler, NoScheduler, Scheduler

_ABOVE_ONE = 1 + 1e-9
"""The whole budget, beyond the last digits of a product of factors."""


def scheduler_of(scheduler: Scheduler, seed: int) -> TrialScheduler:
    """What the spec asks for.

    Args:
        scheduler: of the spec.
        seed: decides, with a trial's number, which bracket of Hyperband it is in.
    """
    match scheduler:
        case NoScheduler():
            return FIFOScheduler()
        case AshaScheduler() | HyperbandScheduler():
            return _Halving(
                time_attr="share",
                max_t=_ABOVE_ONE,
                grace_period=scheduler.min_fraction,
                reduction_factor=scheduler.reduction_factor,
                brackets=scheduler.num_brackets if isinstance(scheduler, HyperbandScheduler) else 1,
                seed=seed,
            )
        case MedianStoppingScheduler():
            return _Median(
                time_attr="share",
                grace_period=scheduler.grace_fraction,
                min_samples_required=scheduler.min_trials,
                min_time_slice=float("inf"),  # never pauses a trial in favour of others
            )


class _Numbered(NamedTuple):
    """A trial as the schedulers know it."""

    trial_id: str


class _Halving(ASHAScheduler):
    def __init__(self, seed: int, **fields: Any) -> None:
        super().__init__(**fields)
        self._seed = seed
        self._known: set[tuple[int, int]] = set()

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        known = _numbered(trial)
        super().on_trial_add(tune_controller, known)
        # Ray draws the bracket anew for a trial that was lost, and after a restart. With the same odds, once for all:
        sizes = np.array([len(bracket._rungs) for bracket in self._brackets])
        weights = np.exp(sizes - sizes.max())
        draw = random.Random(f"{self._seed}/{trial.config['number']}")
        (self._trial_info[known.trial_id],) = draw.choices(self._brackets, weights)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if _is_known(self._known, result):
            return str(TrialScheduler.CONTINUE)
        action = super().on_trial_result(tune_controller, _numbered(trial), result)
        return str(TrialScheduler.CONTINUE if result.get("replayed") else action)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        # Ray Tune tells of the last result once more here, unless the trial ended by itself: then for the first time.
        if not _is_known(self._known, result):
            super().on_trial_complete(tune_controller, _numbered(trial), result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_remove(tune_controller, _numbered(trial))


class _Median(MedianStoppingRule):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._known: set[tuple[int, int]] = set()

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if _is_known(self._known, result):
            return str(TrialScheduler.CONTINUE)
        known = _numbered(trial)
        action = super().on_trial_result(tune_controller, known, result)
        if result.get("replayed"):
            self._stopped_trials.discard(known)
            return str(TrialScheduler.CONTINUE)
        return str(action)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if not _is_known(self._known, result):
            super().on_trial_complete(tune_controller, _numbered(trial), result)


def _numbered(trial: Trial) -> Any:
    return _Numbered(str(trial.config["number"]))


def _is_known(known: set[tuple[int, int]], result: dict[str, Any]) -> bool:
    """Whether a score is told for the second time, as by a trial whose process was lost; remembers it."""
    if "rung" not in result:
        return True  # it ended before its first score: there is nothing to hear
    key = (int(result["number"]), int(result["rung"]))
    if key in known:
        return True
    known.add(key)
    return False
