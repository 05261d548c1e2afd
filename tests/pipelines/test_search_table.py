"""A search as Markdown."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.searching.table import outcome_table
from pipelines.specs.trial_documents import LossAgreement, SearchOutcome, SettingScores, TrialSummary

WEIGHT, SHARING = "objective.discriminator_weight", "model.sharing"


def trial(number: int, **fields: Any) -> TrialSummary:
    given = {
        "state": "COMPLETED",
        "point": {},
        "seed": 1,
        "score": 0.5,
        "step": 20,
        "num_train_steps": 20,
        "flops": 2e9,
    }
    return TrialSummary(number=number, **{**given, **fields})


def outcome(**fields: Any) -> SearchOutcome:
    given = {
        "metric": "probe_mean",
        "mode": "max",
        "num_trials": 3,
        "num_by_state": {"STOPPED": 2, "COMPLETED": 1},
        "verdict": "The base is taken.",
        "flops_trials": 4e12,
        "flops_without_stopping": 1e13,
    }
    return SearchOutcome(**{**given, **fields})


def rows_under(text: str, heading: str) -> list[list[str]]:
    """Cells of the table below a heading, the line under its head left out."""
    lines = text.split(f"## {heading}\n\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line]


def test_the_verdict_comes_first_and_the_cost_last() -> None:
    text = outcome_table(outcome(leaderboard=(trial(0),)))
    assert text.splitlines()[0] == "The base is taken."
    assert text.endswith(
        "## Cost\n\n3 trials (1 completed, 2 stopped) took 4e+12 FLOPs of training, 60 % less than the 1e+13 they "
        "would have taken to their ends; the final round 0 more.\n"
    )


def test_the_networks_that_corrupt_are_part_of_the_cost() -> None:
    text = outcome_table(outcome(flops_final=3e12, flops_reference=2.5e11))
    assert text.endswith("the final round 3e+12 more, the reference generator 2.5e+11.\n")


def test_a_search_without_flops_saved_nothing() -> None:
    assert " 0 % less than the 0 " in outcome_table(outcome(flops_trials=0.0, flops_without_stopping=0.0))


def test_trials_have_a_column_for_every_path_and_nothing_where_it_does_not_count() -> None:
    leaderboard = (
        trial(7, point={WEIGHT: 12.34567, SHARING: "all"}, score=0.123456),
        trial(3, point={SHARING: None, "masking.whole_word": True}, score=None, state="STOPPED", step=7),
    )
    head, first, second = rows_under(outcome_table(outcome(leaderboard=leaderboard)), "Best trials")
    assert head == ["trial", "state", WEIGHT, SHARING, "masking.whole_word", "probe_mean", "step", "FLOPs"]
    assert first == ["7", "completed", "12.35", "all", "", "0.1235", "20 of 20", "2e+09"]
    assert second == ["3", "stopped", "", "None", "True", "none", "7 of 20", "2e+09"]


def test_what_losses_would_have_chosen_is_told_where_it_is_known() -> None:
    agreement = (
        LossAgreement(
            loss="discriminator_loss",
            num_trials=6,
            rank_correlation=-0.314,
            chosen=4,
            chosen_score=0.51239,
            chosen_place=5,
        ),
        LossAgreement(
            loss="generator_loss", num_trials=6, rank_correlation=None, chosen=0, chosen_score=0.25, chosen_place=6
        ),
    )
    _, first, second = rows_under(outcome_table(outcome(loss_agreement=agreement)), "What losses would have chosen")
    assert first == ["discriminator loss", "-0.31", "4", "0.5124", "5 of 6"]
    assert second == ["generator loss", "none", "0", "0.25", "6 of 6"]
    assert "What losses" not in outcome_table(outcome())


def test_every_line_of_a_table_has_as_many_cells() -> None:
    settings = (
        SettingScores(point={WEIGHT: 2.0}, is_base=False, by_seed={"1": 0.5}, mean=0.5, flops=1.0),
        SettingScores(point={}, is_base=True, by_seed={}, mean=None, flops=1.0),
    )
    leaderboard = (trial(0, point={WEIGHT: 1, SHARING: "all"}), trial(1))
    tables = outcome_table(outcome(settings=settings, leaderboard=leaderboard)).split("\n\n")
    widths = [[line.count("|") for line in table.splitlines()] for table in tables if table.startswith("|")]
    assert [len(set(one)) for one in widths] == [1, 1]
    assert [one[0] for one in widths] == [7, 8]


def test_the_final_round_has_intervals_seeds_and_p() -> None:
    settings = (
        SettingScores(
            point={WEIGHT: 20.0},
            is_base=False,
            by_seed={"1": 0.6, "2": 0.7},
            mean=0.65,
            low=0.612345,
            high=0.687655,
            flops=1.0,
            better_than_base_p=0.012345,
        ),
        SettingScores(point={}, is_base=True, by_seed={"1": 0.5}, mean=0.5, flops=1.0),
        SettingScores(point={WEIGHT: 3.0}, is_base=False, by_seed={}, mean=None, flops=1.0),
    )
    head, best, base, failed = rows_under(outcome_table(outcome(settings=settings)), "Final round")
    assert head == ["", WEIGHT, "mean probe_mean", "interval", "seeds", "p against the base"]
    assert best == ["", "20", "0.65", "0.6123 to 0.6877", "2", "0.0123"]
    assert base == ["base", "", "0.5", "", "1", ""]
    assert failed == ["", "3", "none", "", "0", ""]


@pytest.mark.parametrize("is_final", [True, False])
def test_there_is_a_final_round_where_there_was_one(is_final: bool) -> None:
    base = SettingScores(point={}, is_base=True, by_seed={"1": 0.5}, mean=0.5, flops=1.0)
    assert ("## Final round" in outcome_table(outcome(settings=(base,) if is_final else ()))) == is_final
