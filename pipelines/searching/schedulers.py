"""Ray Tune's schedulers, with time as the share of the budget that is spent, and decisions that are made once.

After a restart all scores are told again, in another order, and a scheduler would decide otherwise than before: it
would stop what it had let go on. So of what is known it only hears, and it decides on what is new.
"""

from __future__ import annotations

import random
from typing import Any

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


class _Halving(ASHAScheduler):
    def __init__(self, seed: int, **fields: Any) -> None:
        super().__init__(**fields)
        self._seed = seed
        self._known: set[tuple[int, int]] = set()

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_add(tune_controller, trial)
        # Ray draws the bracket anew for a trial that was lost, and after a restart. With the same odds, once for all:
        sizes = np.array([len(bracket._rungs) for bracket in self._brackets])
        weights = np.exp(sizes - sizes.max())
        draw = random.Random(f"{self._seed}/{trial.config['number']}")
        (self._trial_info[trial.trial_id],) = draw.choices(self._brackets, weights)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if _is_known(self._known, result):
            return str(TrialScheduler.CONTINUE)
        action = super().on_trial_result(tune_controller, trial, result)
        return str(TrialScheduler.CONTINUE if result.get("replayed") else action)


class _Median(MedianStoppingRule):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._known: set[tuple[int, int]] = set()

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if _is_known(self._known, result):
            return str(TrialScheduler.CONTINUE)
        action = super().on_trial_result(tune_controller, trial, result)
        if result.get("replayed"):
            self._stopped_trials.discard(trial)
            return str(TrialScheduler.CONTINUE)
        return str(action)


def _is_known(known: set[tuple[int, int]], result: dict[str, Any]) -> bool:
    """Whether a trial whose process was lost says a score for the second time; remembers it."""
    key = (int(result["number"]), int(result["rung"]))
    if key in known:
        return True
    known.add(key)
    return False
