"""Studies: every setting with every seed, as a table and a picture, and the paper's numbers where it prints any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from training_task import write_corpus

from pipelines.job import JobDirectory
from pipelines.searching.compare import best_of_study
from pipelines.searching.final_round import final_context, study_points
from pipelines.searching.ledger import Ledger
from pipelines.searching.paper import published
from pipelines.searching.rungs import rung_shares
from pipelines.searching.study import draw_study, rung_spreads, study_figure, study_table, way_tables
from pipelines.searching.table import outcome_table
from pipelines.searching.trial import SearchContext
from pipelines.specs.parsing import load_spec
from pipelines.specs.plans import SearchPlan, plan_any
from pipelines.specs.search import SearchSpec
from pipelines.specs.spec_errors import SpecError
from pipelines.specs.trial_documents import RungScore, RungSpread, SearchOutcome, SettingScores, TrialSummary
from pipelines.specs.trials import trial_spec

NAME, RATIO, WEIGHT = "objective.name", "model.generator_size_ratio", "objective.discriminator_weight"
STUDY = """
kind: search
base: {preset: tiny, compute: {num_workers: 1}}
searcher: {type: grid}
scheduler: {type: none, num_rungs: 2}
objective: {type: fixed_corruption}
budget: {steps: 100}
final: {is_study: true, seeds: [1, 2]}
"""

SPACE = """
space: {objective.discriminator_weight: {type: grid, values: [1, 2]}}
"""


def setting(point: dict[str, Any], *scores: float, **fields: Any) -> SettingScores:
    given = {"mean": sum(scores) / len(scores) if scores else None, "flops": 1e12, "is_base": not point}
    by_seed = {str(seed): score for seed, score in enumerate(scores, 1)}
    return SettingScores(point=point, by_seed=by_seed, **{**given, **fields})


def study(base: dict[str, Any], *settings: SettingScores) -> SearchOutcome:
    return SearchOutcome(
        metric="probe_mean",
        mode="max",
        num_trials=0,
        num_by_state={},
        settings=settings,
        is_study=True,
        base=base,
        verdict="A study.",
        flops_trials=0.0,
        flops_final=6e12,
        flops_without_stopping=0.0,
    )


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_table_has_the_bases_own_values_and_the_papers_numbers() -> None:
    found = study({NAME: "electra"}, setting({NAME: "mlm"}, 70.0, 72.0), setting({}, 68.0, 71.0), setting({NAME: "x"}))
    head, _, first, second, third = study_table(found)
    assert cells(head) == [NAME, "mean probe_mean", "spread", "seeds", "FLOPs", "GLUE, Table 5"]
    assert cells(first) == ["mlm", "71", "70 to 72", "2", "1e+12", "82.2"]
    assert cells(second) == ["electra", "69.5", "68 to 71", "2", "1e+12", "85.0"]
    assert cells(third) == ["x", "none", "", "0", "1e+12", ""]
    assert "## Settings" in outcome_table(found)
    assert "## Best trials" not in outcome_table(found)


@pytest.mark.parametrize(("num_by_state", "left_out"), [({}, ""), ({"INVALID": 2}, "; 2 combinations are no specs")])
def test_a_study_is_not_told_as_a_search_that_tried_nothing(num_by_state: dict[str, int], left_out: str) -> None:
    found = study({NAME: "electra"}, setting({NAME: "mlm"}, 70.0, 72.0), setting({}, 68.0, 71.0))
    text = outcome_table(found.model_copy(update={"num_by_state": num_by_state}))
    assert text.endswith(f"## Cost\n\n2 settings took 6e+12 FLOPs of training{left_out}.\n")
    assert "trials" not in text


def test_the_networks_that_corrupt_are_part_of_a_studys_cost() -> None:
    found = study({NAME: "electra"}, setting({}, 68.0)).model_copy(update={"flops_reference": 2.5e11})
    assert outcome_table(found).endswith("1 settings took 6e+12 FLOPs of training, the reference generator 2.5e+11.\n")


def test_of_settings_scored_on_their_way_the_table_has_every_rung_and_the_papers_curve() -> None:
    rungs = tuple(RungSpread(flops=n * 1e9, mean=n, least=n - 1, most=n + 1) for n in (1, 2))
    found = study({NAME: "electra"}, setting({NAME: "mlm"}, 2.0, rungs=rungs), setting({}, 1.0, rungs=rungs))
    rows = [cells(row) for row in way_tables(found)]
    assert [row for row in rows if row[0] == "mlm"] == [
        ["mlm", "1e+09", "1", "0 to 2"],
        ["mlm", "2e+09", "2", "1 to 3"],
    ]
    assert ["BERT-Small", "1.4e+18", "75.1"] in rows
    assert "## On the way" in outcome_table(found)
    alone = study({NAME: "electra"}, setting({}, 1.0, rungs=rungs))
    assert "BERT" not in outcome_table(alone), "the paper's curve is of both"
    assert way_tables(study({NAME: "electra"}, setting({}, 1.0, rungs=rungs[:1]))) == []


def test_a_setting_that_diverged_with_a_seed_does_not_win_by_the_others() -> None:
    lucky, sound = setting({NAME: "mlm"}, 99.0, diverged=(2,)), setting({}, 68.0, 71.0)
    assert best_of_study((lucky, sound, setting({NAME: "x"}))) == sound
    assert best_of_study((lucky,)) == lucky
    assert best_of_study((setting({NAME: "x"}),)) is None
    assert cells(study_table(study({NAME: "electra"}, lucky, sound))[2])[3] == "1, 1 diverged"


def test_what_differs_from_the_paper_in_more_than_one_thing_is_not_held_against_it() -> None:
    assert published({NAME: "electra"}) == ("GLUE, Table 5", 85.0)
    assert published({NAME: "electra", RATIO: 0.5}) is None
    assert published({NAME: "adversarial"}) is None
    assert published({RATIO: 0.25}) is None


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        ({NAME: "electra"}, [setting({}, 1.0, 2.0), setting({NAME: "mlm"}, 0.5, 0.6)]),
        ({RATIO: 0.5, NAME: "electra"}, [setting({}, 1.0), setting({RATIO: 0.25, NAME: "electra"}, 2.0), setting({})]),
        (
            {NAME: "electra"},
            [
                setting({}, 2.0, rungs=(RungSpread(flops=1e9, mean=1, least=0, most=2),) * 2),
                setting({NAME: "mlm"}, 1.0, rungs=(RungSpread(flops=1e9, mean=1, least=0, most=2),) * 2),
            ],
        ),
        ({NAME: "electra"}, [setting({}, 1.0)]),
    ],
)
def test_a_picture_is_drawn_of_whatever_was_varied(
    tmp_path: Path, base: dict[str, Any], settings: list[SettingScores]
) -> None:
    draw_study(study(base, *settings), tmp_path / "study.png")
    picture = imread(tmp_path / "study.png")
    assert picture.shape[:2] == (576, 960)
    assert picture[..., :3].std() > 0.01  # not an empty sheet


def test_no_two_curves_of_a_study_look_the_same_and_many_names_hide_none() -> None:
    rungs = (RungSpread(flops=1e9, mean=1, least=0, most=2), RungSpread(flops=2e9, mean=2, least=1, most=3))
    settings = [setting({WEIGHT: float(n)}, 1.0, rungs=rungs) for n in range(24)]
    figure = study_figure(study({WEIGHT: 50.0}, *settings))
    (axis,) = figure.axes
    assert len({(line.get_color(), line.get_linestyle()) for line in axis.lines}) == 24
    assert axis.get_legend() is None
    assert len(figure.legends[0].get_texts()) == 24
    hundreds = study_figure(study({WEIGHT: 50.0}, *(settings[0] for _ in range(300))))
    assert hundreds.get_figheight() < 10


def test_numbers_over_orders_of_magnitude_are_drawn_by_their_logarithms() -> None:
    def scale(*weights: float) -> str:
        settings = [setting({WEIGHT: weight}, 1.0, 2.0) for weight in weights]
        (axis,) = study_figure(study({WEIGHT: 50.0}, *settings)).axes
        return str(axis.get_xscale())

    assert (scale(1.0, 10.0, 100.0), scale(0.0, 100.0), scale(0.25, 1.0)) == ("log", "linear", "linear")


def test_a_setting_on_its_way_is_its_seeds_at_each_rung() -> None:
    def final(seed: int, *scores: float, **fields: Any) -> TrialSummary:
        rungs = tuple(RungScore(step=n, tokens=n, flops=n * 1e9, score=one) for n, one in enumerate(scores, 1))
        given = {"state": "COMPLETED", "point": {NAME: "mlm"}, "is_final": True}
        return TrialSummary(number=seed, seed=seed, rungs=rungs, **{**given, **fields})

    trials = [final(1, 0.5, 0.75), final(2, 0.25, 0.5), final(3, 9.0, state="DIVERGED"), final(4, 9.0, 9.0, point={})]
    assert rung_spreads({NAME: "mlm"}, trials) == (
        RungSpread(flops=1e9, mean=0.375, least=0.25, most=0.5),
        RungSpread(flops=2e9, mean=0.625, least=0.5, most=0.75),
    )


def test_the_settings_of_a_study_are_the_grids_and_the_base_is_one_of_them(tmp_path: Path) -> None:
    ratios, weights = "{type: grid, values: [0.5, '.25', 0.25]}", "{type: grid, values: [50.0, -1.0]}"
    space = f"space: {{{RATIO}: {ratios}, {WEIGHT}: {weights}}}"
    spec = load_spec(STUDY.replace("preset: tiny", "preset: tiny, model: {generator_size_ratio: 0.5}") + space)
    assert isinstance(spec, SearchSpec)
    (tmp_path / "corpus").mkdir()
    corpus = write_corpus(tmp_path / "corpus")
    directory = JobDirectory(str(tmp_path / "jobs" / "se-1"))
    base = trial_spec(spec, {}, corpus.vocab_size)
    context = SearchContext(spec, base, corpus, None, directory.uri, rung_shares(spec.scheduler))
    ledger = Ledger(directory, "fixed_corruption_auc", "max")
    points = study_points(context, ledger)
    assert points == [{}, {RATIO: ".25", WEIGHT: 50.0}], "what is the same training counts once"
    assert [one.point[WEIGHT] for one in ledger.trials] == [-1.0] * 3
    assert study_points(context, ledger) == points
    assert len(ledger.trials) == 3
    assert final_context(context).shares == (0.5, 1.0)


def test_a_study_is_planned_with_every_training() -> None:
    planned = plan_any(load_spec(STUDY + SPACE))
    assert isinstance(planned, SearchPlan)
    assert (planned.num_trials, planned.num_final_trainings) == (0, 4)
    assert planned.flops_without_stopping == pytest.approx(4 * planned.flops_per_trial)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [(("type: grid", "type: random"), "choice"), (("type: none, num_rungs: 2", "type: asha"), "grid")],
)
def test_a_study_stops_nothing_and_chooses_nothing(changed: tuple[str, str], kind: str) -> None:
    with pytest.raises(
        SpecError, match=r"searcher\.type must be 'grid' and scheduler\.type 'none' where final\.is_study"
    ):
        load_spec(STUDY.replace(*changed) + SPACE.replace("grid", kind))
