"""What a search says of the losses of training: whether choosing by them would have chosen as the scores do."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.searching.agreement import MIN_TRIALS, last_losses, loss_agreement
from pipelines.specs.trial_documents import RungScore, TrialSummary

SCORES = (0.5, 0.7, 0.6, 0.9, 0.8)


def trial(number: int, score: float | None, *later: float, **losses: float) -> TrialSummary:
    """Scored at 10, 20, … steps."""
    rungs = [RungScore(step=10, tokens=0, flops=1.0, score=score, losses=losses)]
    rungs += [RungScore(step=20, tokens=0, flops=2.0, score=one) for one in later]
    return TrialSummary(number=number, state="COMPLETED", point={}, seed=1, rungs=tuple(rungs))


def agreed(losses: tuple[float, ...], scores: tuple[float, ...] = SCORES, mode: Any = "max") -> Any:
    """Of one loss."""
    trials = [
        trial(number, score, discriminator_loss=loss)
        for number, (loss, score) in enumerate(zip(losses, scores, strict=True))
    ]
    (found,) = loss_agreement(trials, mode)
    return found


@pytest.mark.parametrize(
    ("losses", "correlation", "chosen", "place"),
    [
        ((5.0, 3.0, 4.0, 1.0, 2.0), 1.0, 3, 1),
        ((1.0, 3.0, 2.0, 5.0, 4.0), -1.0, 0, 5),
        ((5.0, 3.0, 4.0, 2.0, 1.0), 0.9, 4, 2),  # 1 − 6 · (1 + 1) / (5 · 24)
    ],
)
def test_a_loss_is_held_against_the_scores(
    losses: tuple[float, ...], correlation: float, chosen: int, place: int
) -> None:
    found = agreed(losses)
    assert found.rank_correlation == pytest.approx(correlation)
    assert (found.chosen, found.chosen_place, found.chosen_score) == (chosen, place, SCORES[chosen])
    assert (found.loss, found.num_trials) == ("discriminator_loss", 5)


def test_where_less_is_better_so_is_a_smaller_score() -> None:
    found = agreed((1.0, 3.0, 2.0, 5.0, 4.0), mode="min")
    assert found.rank_correlation == pytest.approx(1.0)
    assert (found.chosen, found.chosen_place) == (0, 1)


@pytest.mark.parametrize(("losses", "scores"), [((1.0,) * 5, SCORES), ((1.0, 2.0, 3.0, 4.0, 5.0), (0.5,) * 5)])
def test_nothing_is_ranked_by_what_is_the_same_everywhere(losses: tuple[float, ...], scores: tuple[float, ...]) -> None:
    assert agreed(losses, scores).rank_correlation is None


def test_only_first_rungs_with_a_score_of_the_search_count_and_losses_that_all_have() -> None:
    trials = [
        *(trial(number, score, 0.1, discriminator_loss=1 - score) for number, score in enumerate(SCORES)),
        trial(5, 0.4, discriminator_loss=0.0, generator_loss=1.0),
        trial(6, None, discriminator_loss=-1.0),
        trial(7, 0.95, discriminator_loss=-2.0).model_copy(update={"is_final": True}),
        TrialSummary(number=8, state="FAILED", point={}, seed=1),
    ]
    (found,) = loss_agreement(trials, "max")
    assert (found.loss, found.num_trials, found.chosen, found.chosen_place) == ("discriminator_loss", 6, 5, 6)


def test_few_trials_say_nothing() -> None:
    trials = [trial(number, 0.1 * number, generator_loss=1.0 + number) for number in range(MIN_TRIALS - 1)]
    assert loss_agreement(trials, "max") == ()
    assert len(loss_agreement([*trials, trial(9, 0.9, generator_loss=0.5)], "max")) == 1


def test_losses_are_those_at_the_end_of_a_rung() -> None:
    """A fifth of its log steps, one at least, and of what else was logged nothing."""
    curve = [(step, {"discriminator_loss": float(step), "mfu": 0.5}) for step in range(1, 11)]
    assert last_losses(curve) == {"discriminator_loss": 9.5}
    assert last_losses([(1, {"discriminator_loss": 3.0}), (2, {"discriminator_loss": 1.0})]) == {
        "discriminator_loss": 1.0
    }
    assert last_losses(()) == {}
