"""The numbers behind a search's plots, and the plots as files that need nobody else."""

from __future__ import annotations

import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from pydantic import TypeAdapter

from pipelines.searching.figures import MIN_TRIALS_FOR_IMPORTANCE, RungPoint, SearchFigures, search_figures
from pipelines.searching.plots import BELOW, PAGE_FILE, _axes_of, draw_search
from pipelines.specs.space import Space
from pipelines.specs.trial_documents import RungScore, TrialState, TrialSummary

WEIGHT, RATE, SHARING = "objective.discriminator_weight", "optimizer.learning_rate", "model.sharing"
SPACE: Any = TypeAdapter(Space).validate_python(
    {
        WEIGHT: {"type": "log_uniform", "low": 1, "high": 100},
        RATE: {"type": "uniform", "low": 0, "high": 1},
        SHARING: {"type": "choice", "values": ["all", "none", None]},
        "model.num_hidden_layers": {"type": "int", "low": 1, "high": 12, "step": 3},
        "masking.whole_word": {"type": "grid", "values": [True, False], "when": {SHARING: ["all"]}},
    }
)


def trial(number: int, *scores: float | None, state: TrialState = "COMPLETED", **fields: Any) -> TrialSummary:
    """Rungs at 10, 20, … steps, of as many FLOPs."""
    rungs = tuple(
        RungScore(step=10 * (k + 1), tokens=0, flops=10.0 * (k + 1), score=one) for k, one in enumerate(scores)
    )
    given = {"point": {WEIGHT: 1.0 + number}, "seed": 1, "rungs": rungs, "score": scores[-1] if scores else None}
    return TrialSummary(number=number, state=state, **{**given, **fields})


def figures_of(*trials: TrialSummary, mode: Any = "max") -> SearchFigures:
    return search_figures(trials, SPACE, "auc", mode)


def drawn_points(count: int) -> list[TrialSummary]:
    """Random points whose score is their learning rate, nearly."""
    rng = random.Random(0)
    trials = []
    for number in range(count):
        sharing = rng.choice(["all", "none", None])
        point = {
            WEIGHT: 100 ** rng.random(),
            RATE: rng.random(),
            SHARING: sharing,
            "model.num_hidden_layers": rng.choice([1, 4, 7, 10]),
            **({"masking.whole_word": rng.random() < 0.5} if sharing == "all" else {}),
        }
        score = point[RATE] + 0.01 * rng.random()
        state: TrialState = "COMPLETED" if number % 2 else "STOPPED"
        trials.append(trial(number, score, score + 0.1, point=point, state=state))
    return trials


def test_trials_are_compared_at_the_first_rung() -> None:
    """The only one that all of them reach: at their ends those that were stopped would be missing."""
    found = figures_of(trial(0, 0.5, 0.9), trial(1, 0.6, state="STOPPED"))
    assert [(one.number, one.score, one.is_completed) for one in found.scored] == [(0, 0.5, True), (1, 0.6, False)]
    assert [one.point for one in found.scored] == [{WEIGHT: 1.0}, {WEIGHT: 2.0}]
    assert found.rung_step == 10


def test_trials_without_a_score_and_those_of_the_final_round_are_left_out() -> None:
    found = figures_of(
        trial(0, None, state="DIVERGED"),
        trial(1, state="FAILED"),
        trial(2, state="INVALID"),
        trial(3, 0.9, is_final=True),
        trial(4, 0.5, None, state="DIVERGED"),
    )
    assert [one.number for one in found.scored] == [4]
    assert found.rungs == (RungPoint(4, 10.0, 0.5),)


def test_the_front_has_what_no_cheaper_rung_is_as_good_as() -> None:
    found = figures_of(trial(0, 0.5, 0.6, 0.9), trial(1, 0.7, 0.7, 0.8), trial(2, 0.6))
    assert found.front == (RungPoint(1, 10.0, 0.7), RungPoint(0, 30.0, 0.9))


def test_the_front_falls_where_less_is_better() -> None:
    found = figures_of(trial(0, 0.5, 0.4, 0.2), trial(1, 0.3, 0.3, 0.1), mode="min")
    assert found.front == (RungPoint(1, 10.0, 0.3), RungPoint(1, 30.0, 0.1))


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_every_rung_is_on_the_front_or_behind_one_that_is(mode: str, sign: int) -> None:
    trials = [trial(n, *(random.Random(n).random() for _ in range(5))) for n in range(20)]
    found = figures_of(*trials, mode=mode)
    assert {one.number for one in found.rungs} == set(range(20))
    for rung in found.rungs:
        better = [
            one
            for one in found.rungs
            if one.flops <= rung.flops
            and sign * one.score >= sign * rung.score
            and (one.flops, one.score) != (rung.flops, rung.score)
        ]
        assert (rung in found.front) == (not better)


def test_of_rungs_that_cost_the_same_the_better_is_on_the_front() -> None:
    assert figures_of(trial(0, 0.5), trial(1, 0.7)).front == (RungPoint(1, 10.0, 0.7),)


def test_what_the_scores_follow_is_most_important() -> None:
    importance = figures_of(*drawn_points(40)).importance
    assert importance[RATE] > 0.8
    assert sum(importance.values()) == pytest.approx(1)
    assert "masking.whole_word" not in importance, "some points lack it"
    assert set(importance) == set(SPACE) - {"masking.whole_word"}


def test_importance_of_choices_of_many_values_is_reckoned_in_seconds() -> None:
    """With a column for each value this did not end."""
    ratio, layers = "model.generator_size_ratio", "model.num_hidden_layers"
    values = {ratio: [round(n / 64, 3) for n in range(8, 65)], layers: [*range(1, 41)]}
    space = TypeAdapter(Space).validate_python(
        {path: {"type": "choice", "values": own} for path, own in values.items()}
    )
    rng = random.Random(0)
    points = [{path: rng.choice(own) for path, own in values.items()} for _ in range(60)]
    trials = [trial(n, float(point[layers]), point=point) for n, point in enumerate(points)]
    assert search_figures(trials, space, "auc", "max").importance[layers] > 0.8


def test_importance_is_the_same_each_time() -> None:
    assert figures_of(*drawn_points(20)).importance == figures_of(*drawn_points(20)).importance


def test_importance_needs_trials_and_scores_that_differ() -> None:
    few = drawn_points(MIN_TRIALS_FOR_IMPORTANCE - 1)
    assert figures_of(*few).importance == {}
    assert figures_of(*drawn_points(MIN_TRIALS_FOR_IMPORTANCE)).importance
    same = [one.model_copy(update={"rungs": trial(0, 0.5).rungs}) for one in drawn_points(10)]
    assert figures_of(*same).importance == {}


def test_where_a_path_does_not_count_its_axis_says_so_and_shows_no_value() -> None:
    """A line straight to the next axis would cross this one at a value that the trial did not have."""
    points = {0: {SHARING: "all", RATE: 0.5}, 1: {SHARING: "all", RATE: 0.75}, 2: {SHARING: "none"}}
    found = figures_of(*(trial(n, 0.5 + n / 10, point=point) for n, point in points.items()))
    sharing, rate = _axes_of(found)
    assert [rate.place_of(one) for one in found.scored] == [0, 1, BELOW]
    assert rate.ticks == [(BELOW, "does not count"), (0, "0.5"), (1, "0.75")]
    assert [text for _, text in sharing.ticks] == ["all", "none"]


class _Page(HTMLParser):
    """What a page would fetch, its headings and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.scripts: list[str] = []
        self._is_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_script = tag == "script"
        if self._is_script:
            self.scripts.append("")
        self.fetched += [
            value for name, value in attrs if value and (name == "src" or (tag == "link" and name == "href"))
        ]

    def handle_endtag(self, tag: str) -> None:
        self._is_script = False

    def handle_data(self, data: str) -> None:
        if self._is_script:
            self.scripts[-1] += data


def traces_of(page: _Page) -> list[list[dict[str, Any]]]:
    """Of each plot its traces, as they are given to plotly."""
    decoder = json.JSONDecoder()
    return [
        decoder.raw_decode(script[match.end() :])[0]
        for script in page.scripts
        for match in re.finditer(r"Plotly\.newPlot\(\s*\"[^\"]+\",\s*", script)
    ]


def test_the_plots_are_written_and_the_page_needs_no_network(tmp_path: Path) -> None:
    found = figures_of(*drawn_points(12))
    draw_search(found, tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {
        "parallel.png",
        "importance.png",
        "quality_vs_flops.png",
        PAGE_FILE,
    }
    for path in tmp_path.glob("*.png"):
        pixels = imread(path)
        assert pixels.std() > 0.01, f"{path.name} is empty"
        assert min(pixels.shape[:2]) > 100
    page = _Page((tmp_path / PAGE_FILE).read_text())
    assert page.fetched == []
    parallel, importance, quality = traces_of(page)
    assert [one["label"] for one in parallel[0]["dimensions"]] == [*SPACE, "auc"]
    assert importance[0]["y"] == list(found.importance)[::-1]
    assert quality[-1]["x"] == [one.flops for one in found.front]
    assert quality[-1]["y"] == [one.score for one in found.front]
    assert len(quality) == len(found.scored) + 1


def test_words_and_absent_values_have_places_on_their_axes(tmp_path: Path) -> None:
    trials = [
        trial(0, 0.5, point={SHARING: "all", "masking.whole_word": True}),
        trial(1, 0.6, point={SHARING: None}),
        trial(2, 0.7, point={SHARING: "none", WEIGHT: 5}),
    ]
    draw_search(figures_of(*trials), tmp_path)
    parallel, _ = traces_of(_Page((tmp_path / PAGE_FILE).read_text()))
    by_label = {one["label"]: one for one in parallel[0]["dimensions"]}
    assert by_label["masking.whole_word"]["values"] == [0.0, -0.1, -0.1], "below the axis where it does not count"
    assert by_label[WEIGHT]["ticktext"] == ["does not count", "5"]


def test_numbers_over_orders_of_magnitude_are_drawn_by_their_logarithms(tmp_path: Path) -> None:
    trials = [trial(number, 0.5, point={WEIGHT: weight}) for number, weight in enumerate((1.0, 10.0, 100.0))]
    draw_search(figures_of(*trials), tmp_path)
    parallel, _ = traces_of(_Page((tmp_path / PAGE_FILE).read_text()))
    axis = parallel[0]["dimensions"][0]
    assert axis["values"] == pytest.approx([0, 0.5, 1])
    assert axis["ticktext"] == ["1", "10", "100"]


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite_are_passed_over(tmp_path: Path, odd: float) -> None:
    """An earlier version put them down, and after a whole search nothing is worse than a picture that is not drawn."""
    drawn = drawn_points(8)
    found = figures_of(*drawn, trial(8, odd, 0.5), trial(9, 0.5, odd, 0.7))
    assert [one.number for one in found.scored] == [*range(8), 9]
    assert [one.score for one in found.rungs if one.number == 9] == [0.5, 0.7]
    assert found.importance
    draw_search(found, tmp_path)
    assert (tmp_path / PAGE_FILE).exists()


@pytest.mark.parametrize("scores", [(1e30, -1e30), (5e-324, 0.0), (0.0, 0.0)])
def test_scores_of_any_size_can_be_drawn(tmp_path: Path, scores: tuple[float, float]) -> None:
    draw_search(figures_of(trial(0, scores[0]), trial(1, scores[1]), trial(2, scores[0])), tmp_path)
    assert (tmp_path / PAGE_FILE).exists()


@pytest.mark.parametrize("mode", ["max", "min"])
def test_one_trial_is_enough_for_plots(tmp_path: Path, mode: str) -> None:
    draw_search(figures_of(trial(0, 0.5), mode=mode), tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {"parallel.png", "quality_vs_flops.png", PAGE_FILE}


def test_without_a_score_nothing_is_drawn(tmp_path: Path) -> None:
    draw_search(figures_of(trial(0, None, state="DIVERGED")), tmp_path)
    assert list(tmp_path.iterdir()) == []
