"""Whether the losses of training rank a search's trials as their scores do: what choosing by them would have taken.

A loss is no measure of an encoder where the space changes what it is of, such as the generator that makes the task;
this says how far that goes for the trials at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from scipy import stats

from pipelines.specs.trial_documents import LossAgreement, RungScore, TrialSummary

MIN_TRIALS = 5
"""With fewer every order is likely by chance."""
LAST_SHARE = 0.2
"""Of a rung's log steps: losses at its end, and not on the way there."""


def last_losses(curve: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Mean of each loss over the last log steps of a rung; losses that were never logged are absent.

    Args:
        curve: step and figures of training at each log step since the rung before.
    """
    last = curve[-max(1, round(LAST_SHARE * len(curve))) :]
    names = dict.fromkeys(name for _, figures in last for name in figures if name.endswith("_loss"))
    found = {name: [figures[name] for _, figures in last if name in figures] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}


def loss_agreement(trials: Sequence[TrialSummary], mode: Literal["max", "min"]) -> tuple[LossAgreement, ...]:
    """For each loss that all trials have, at the first rung, the only one that no scheduler keeps trials from.

    Args:
        trials: of the search; those of the final round and those without a score are left out.
        mode: whether a larger score is better.
    """
    firsts = [
        (one.number, one.rungs[0], one.rungs[0].score)
        for one in trials
        if not one.is_final and one.rungs and one.rungs[0].score is not None
    ]
    if len(firsts) < MIN_TRIALS:
        return ()
    sign = 1.0 if mode == "max" else -1.0
    goodness = {number: sign * score for number, _, score in firsts}
    names = dict.fromkeys(name for _, rung, _ in firsts for name in rung.losses)
    return tuple(
        _agreement(name, {number: rung for number, rung, _ in firsts}, goodness)
        for name in names
        if all(name in rung.losses for _, rung, _ in firsts)
    )


def _agreement(name: str, rungs: Mapping[int, RungScore], goodness: Mapping[int, float]) -> LossAgreement:
    losses = {number: rung.losses[name] for number, rung in rungs.items()}
    chosen = min(losses, key=lambda number: losses[number])
    return LossAgreement(
        loss=name,
        num_trials=len(rungs),
        rank_correlation=_spearman([-one for one in losses.values()], [goodness[number] for number in losses]),
        chosen=chosen,
        chosen_score=rungs[chosen].score,
        chosen_place=1 + sum(one > goodness[chosen] for one in goodness.values()),
    )


def _spearman(before: Sequence[float], after: Sequence[float]) -> float | None:
    """None where either has nothing to rank, of which scipy would warn and say NaN."""
    if len(set(before)) < 2 or len(set(after)) < 2:
        return None
    return float(stats.spearmanr(before, after).statistic)
