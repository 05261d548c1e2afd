"""The verdict of a search: what it says of the winner, and why it was taken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from search_world import WEIGHT, rung_context

from pipelines.job import JobDirectory
from pipelines.searching.compare import SettingRuns, compare_settings, winner_of
from pipelines.searching.final_round import runs_of
from pipelines.searching.ledger import Ledger
from pipelines.searching.outcome import make_outcome
from pipelines.searching.trial import RungResult, SearchContext, make_trial
from pipelines.specs.trial_documents import SearchOutcome, TrialState

A = {WEIGHT: 7.0}
Ends = Mapping[int, float | TrialState]
"""Of the final round's trainings: a score, or how they ended without one, by seed."""


@pytest.fixture
def context(tmp_path: Path) -> SearchContext:
    return rung_context(tmp_path, final={"num_best": 1, "seeds": [1, 2, 3]})


def outcome_of(context: SearchContext, base: Ends, a: Ends) -> SearchOutcome:
    """Of a search whose best trial was A, and whose final round ended so."""
    ledger = Ledger(JobDirectory(context.job_uri), "fixed_corruption_auc", "max")
    put_down(ledger, context, A, 0, 0.9, is_final=False)
    for point, ends in (({}, base), (A, a)):
        for seed, end in ends.items():
            put_down(ledger, context, point, seed, end, is_final=True)
    runs = runs_of([{}, A], ledger.trials)
    settings = compare_settings(runs, "max", 0.95)
    choice = winner_of(settings, 0.95, 3)
    assert choice is not None
    return make_outcome(context, ledger, settings, choice.setting.point, choice)


def put_down(
    ledger: Ledger, context: SearchContext, point: dict[str, float], seed: int, end: float | str, *, is_final: bool
) -> None:
    trial = make_trial(context, dict(point), seed)
    number = ledger.add(dict(point), trial, is_final=is_final).number
    score = end if isinstance(end, float) else None
    result = RungResult(20, 5120, 1e9, score, {}, (), 1.0, 1.0)
    if end != "FAILED":
        ledger.reached(number, [result])
    states: dict[str, TrialState] = {"DIVERGED": "DIVERGED", "FAILED": "FAILED"}
    ledger.ended(number, states.get(str(end), "COMPLETED"))


def test_a_setting_that_leads_with_every_seed_is_called_better(context: SearchContext) -> None:
    outcome = outcome_of(context, {1: 0.5, 2: 0.6, 3: 0.7}, {1: 0.6, 2: 0.71, 3: 0.79})
    assert outcome.is_better_than_base is True
    assert outcome.winner == A
    assert f"{WEIGHT} = 7" in outcome.verdict
    assert "is better than the base: mean fixed_corruption_auc 0.7 [" in outcome.verdict
    assert "over 3 seeds (p = 0.00" in outcome.verdict
    assert "for all 1 settings tested)." in outcome.verdict


def test_a_lead_within_seed_noise_leaves_the_base(context: SearchContext) -> None:
    outcome = outcome_of(context, {1: 0.5, 2: 0.6, 3: 0.7}, {1: 0.9, 2: 0.5, 3: 0.75})
    assert (outcome.is_better_than_base, outcome.winner) == (False, {})
    assert outcome.verdict.startswith("No setting is better than the base by more than seed noise (3 seeds, 95 %)")


@pytest.mark.parametrize("num_scored", [0, 1, 2])
def test_a_base_that_diverged_is_said_to_have_though_its_scores_are_higher(
    context: SearchContext, num_scored: int
) -> None:
    """With two scores there is a p as well, of 1: it is not what the setting is taken for."""
    base: dict[int, float | TrialState] = {seed: 0.9 if seed <= num_scored else "DIVERGED" for seed in (1, 2, 3)}
    outcome = outcome_of(context, base, {1: 0.2, 2: 0.3, 3: 0.4})
    assert (outcome.is_better_than_base, outcome.winner) == (True, A)
    assert outcome.verdict.startswith(f"The base diverged with {3 - num_scored} of 3 seeds; {WEIGHT} = 7")
    assert "better" not in outcome.verdict


def test_a_training_that_was_lost_is_nothing_against_its_setting_and_is_told(context: SearchContext) -> None:
    outcome = outcome_of(context, {1: "FAILED", 2: 0.8, 3: 0.9}, {1: 0.2, 2: 0.3, 3: 0.4})
    assert (outcome.is_better_than_base, outcome.winner) == (False, {})
    assert "(2 seeds, 95 %)" in outcome.verdict
    assert outcome.verdict.endswith("1 of 6 trainings failed and are not in these figures.")


@pytest.mark.parametrize(
    ("base", "a", "why"),
    [
        ({1: 0.5, 2: 0.6, 3: 0.7}, {1: 0.9, 2: 0.9, 3: "DIVERGED"}, f"{WEIGHT} = 7 diverged with 1 of 3 seeds"),
        ({1: 0.5, 2: 0.6, 3: 0.7}, {1: 0.9, 2: 0.9, 3: "FAILED"}, f"{WEIGHT} = 7 came to a score with 2 of 3 seeds"),
        ({1: 0.5, 2: "FAILED", 3: "FAILED"}, {1: 0.9, 2: 0.9, 3: 0.9}, "the base came to a score with 1 of 3 seeds"),
        (
            {1: 0.5, 2: 0.6, 3: "FAILED"},
            {1: 0.9, 2: "FAILED", 3: 0.9},
            f"{WEIGHT} = 7 came to a score with 2 of 3 seeds",
        ),
    ],
)
def test_where_nothing_could_be_tested_the_verdict_says_so_and_why(
    context: SearchContext, base: Ends, a: Ends, why: str
) -> None:
    outcome = outcome_of(context, base, a)
    assert (outcome.is_better_than_base, outcome.winner) == (False, {})
    assert outcome.verdict.startswith(f"No setting could be tested against the base: {why}")
    assert "the base is taken, with a mean fixed_corruption_auc of" in outcome.verdict
    assert "seed noise" not in outcome.verdict


def test_where_the_base_is_the_only_setting_nothing_could_be_tested(context: SearchContext) -> None:
    """The best trials were the base itself."""
    ledger = Ledger(JobDirectory(context.job_uri), "fixed_corruption_auc", "max")
    put_down(ledger, context, {}, 0, 0.9, is_final=False)
    for seed in (1, 2, 3):
        put_down(ledger, context, {}, seed, 0.5, is_final=True)
    settings = compare_settings(runs_of([{}], ledger.trials), "max", 0.95)
    choice = winner_of(settings, 0.95, 3)
    assert choice is not None
    verdict = make_outcome(context, ledger, settings, {}, choice).verdict
    assert verdict.startswith("No setting could be tested against the base: no other was trained")


def test_settings_that_could_not_be_tested_are_named_beside_those_that_could(context: SearchContext) -> None:
    b = {WEIGHT: 9.0}
    ledger = Ledger(JobDirectory(context.job_uri), "fixed_corruption_auc", "max")
    ends: list[tuple[Mapping[str, float], Ends]] = [
        ({}, {1: 0.5, 2: 0.6, 3: 0.7}),
        (A, {1: 0.9, 2: 0.5, 3: 0.75}),
        (b, {1: 0.9, 2: "DIVERGED", 3: "DIVERGED"}),
    ]
    for point, by_seed in ends:
        for seed, end in by_seed.items():
            put_down(ledger, context, dict(point), seed, end, is_final=True)
    settings = compare_settings(runs_of([{}, A, b], ledger.trials), "max", 0.95)
    choice = winner_of(settings, 0.95, 3)
    assert choice is not None
    verdict = make_outcome(context, ledger, settings, {}, choice).verdict
    assert verdict.startswith("No setting is better than the base by more than seed noise (3 seeds, 95 %)")
    assert f"Not tested: {WEIGHT} = 9 diverged with 2 of 3 seeds." in verdict


def test_without_any_score_of_the_base_nothing_is_called_better(context: SearchContext) -> None:
    outcome = outcome_of(context, dict.fromkeys((1, 2, 3), "FAILED"), {1: 0.2, 2: 0.3, 3: 0.4})
    assert (outcome.is_better_than_base, outcome.winner) == (False, A)
    assert outcome.verdict.startswith("The base came to no score;")
    assert "held against nothing" in outcome.verdict


def test_a_setting_without_runs_has_no_scores() -> None:
    assert runs_of([A], []) == [SettingRuns(A, {}, 0.0)]


def test_the_verdict_of_a_study_says_which_setting_it_is_of_and_what_diverged_or_was_lost(tmp_path: Path) -> None:
    space = {WEIGHT: {"type": "grid", "values": [7.0, 50.0]}}
    final = {"is_study": True, "seeds": [1, 2, 3]}
    grid = {"searcher": {"type": "grid"}, "scheduler": {"type": "none"}}
    context = rung_context(tmp_path, space=space, final=final, **grid)
    outcome = outcome_of(context, {1: 0.9, 2: "DIVERGED", 3: "DIVERGED"}, {1: 0.5, 2: 0.75, 3: "FAILED"})
    assert outcome.verdict == (
        "A study of 2 settings with 3 seeds each: the best mean fixed_corruption_auc is 0.625 [-0.9633, 2.213], of "
        f"{WEIGHT} = 7. Of 3 seeds {WEIGHT} = 50 diverged with 2. 1 of 6 trainings failed and are not in these figures."
    )
