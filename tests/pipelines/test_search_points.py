"""Which points trials get: what was begun, what failed and what is left, over attempts and to the end of a space."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from search_texts import number, search
from training_task import write_corpus

from pipelines.job import JobDirectory
from pipelines.searching import tune_searcher
from pipelines.searching.ledger import Ledger
from pipelines.searching.suggest import proposer_of
from pipelines.searching.trial import RungResult, SearchContext
from pipelines.searching.tune_searcher import TrialSearcher
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point, Value
from pipelines.specs.trials import trial_spec

RATE, RATIO = "objective.discriminator_weight", "model.generator_size_ratio"
Searcher = Literal["random", "tpe", "cma"]


@pytest.fixture
def searcher_of(tmp_path: Path) -> Callable[[SearchSpec], TrialSearcher]:
    """What Ray Tune asks for trials, of one attempt after another at the same job. No Ray runs."""
    corpus_folder = tmp_path / "corpus"
    corpus_folder.mkdir()
    corpus = write_corpus(corpus_folder)

    def make(spec: SearchSpec) -> TrialSearcher:
        directory = JobDirectory(str(tmp_path / "jobs" / "search-1"))
        context = SearchContext(spec, trial_spec(spec, {}), corpus, None, directory.uri, (1.0,))
        ledger = Ledger(directory, "fixed_corruption_auc", "max")
        chosen = proposer_of(spec, "max", len(ledger.trials))
        return TrialSearcher(context, ledger, chosen, spec.most_trials, False, lambda: False)

    return make


def handed_out(searcher: TrialSearcher, most: int = 1000) -> list[dict[str, Value]]:
    """Points until there are no more; the list is written as the driver does. None of them ends."""
    points = []
    for k in range(most):
        config = searcher.suggest(f"{id(searcher)}-{k}")
        if not isinstance(config, dict):
            break
        points.append(config["point"])
    searcher._ledger.write(now=True)
    return points


def scored_out(
    searcher: TrialSearcher,
    score: Callable[[Point], float] = lambda point: number(point, RATE) if RATE in point else 0.0,
) -> list[dict[str, Value]]:
    """Points until there are no more; each has ended before the next is asked for."""
    points = []
    for k in range(1000):
        config = searcher.suggest(str(k))
        if not isinstance(config, dict):
            break
        points.append(config["point"])
        searcher.on_trial_complete(str(k), {"rung": 0, "score": score(config["point"])})
    return points


WEIGHTS = {"objective.discriminator_weight": {"type": "grid", "values": list(range(1, 13))}}


def test_an_attempt_that_starts_again_hands_out_what_was_begun_and_then_the_rest(
    searcher_of: Callable[[SearchSpec], TrialSearcher],
) -> None:
    spec = search(space=WEIGHTS, searcher={"type": "grid"})
    begun = handed_out(searcher_of(spec), 5)
    points = handed_out(searcher_of(spec))
    assert points[:5] == begun
    assert [one["objective.discriminator_weight"] for one in points] == list(range(1, 13))


def test_points_that_are_one_training_are_tried_once(searcher_of: Callable[[SearchSpec], TrialSearcher]) -> None:
    """50 and 50.0 are two values of a space and one spec."""
    space = {"objective.discriminator_weight": {"type": "grid", "values": [50, 50.0, 20]}}
    spec = search(space=space, searcher={"type": "grid"})
    assert handed_out(searcher_of(spec)) == [{path: value} for path in space for value in (50, 20)]


def test_a_point_that_is_no_spec_is_put_down_and_passed_over(
    searcher_of: Callable[[SearchSpec], TrialSearcher],
) -> None:
    space = {"model.num_attention_heads": {"type": "grid", "values": [2, 3, 4]}}
    searcher = searcher_of(search(space=space, searcher={"type": "grid"}))
    assert handed_out(searcher) == [{"model.num_attention_heads": 2}, {"model.num_attention_heads": 4}]
    (invalid,) = [one for one in searcher._ledger.trials if one.state == "INVALID"]
    assert invalid.point == {"model.num_attention_heads": 3}
    assert invalid.reason.startswith("model: hidden_size must be a multiple of num_attention_heads")


def test_a_trial_that_failed_in_an_earlier_attempt_runs_again(
    searcher_of: Callable[[SearchSpec], TrialSearcher],
) -> None:
    spec = search(space=WEIGHTS, searcher={"type": "grid"})
    first = searcher_of(spec)
    first.suggest("a")
    first.on_trial_complete("a", {"rung": 0, "score": float("nan"), "failure": "the pairs are gone"})
    assert (first._ledger[0].state, first._ledger[0].reason) == ("FAILED", "the pairs are gone")
    first._ledger.write(now=True)
    again = searcher_of(spec)
    config = again.suggest("b")
    assert isinstance(config, dict)
    assert (config["number"], config["is_replay"]) == (0, False)
    assert again._ledger[0].state == "RUNNING"


def test_what_is_done_with_is_told_before_anything_trains(searcher_of: Callable[[SearchSpec], TrialSearcher]) -> None:
    """Of an earlier attempt: scheduler and proposer know its scores before the first trial that needs them."""
    spec = search(space=WEIGHTS, searcher={"type": "grid"})
    first = searcher_of(spec)
    for launch in range(5):
        first.suggest(str(launch))
    first.on_trial_complete("1", {"rung": 0, "score": float("nan"), "failure": "the pairs are gone"})
    for launch in (2, 4):
        config = first._running[str(launch)]
        RungResult(config.trial.steps[0], 1, 1.0, 0.5, {}, (), 1.0, 1.0).write(config.trial, 0)
        first.on_trial_complete(str(launch), {"rung": 0, "score": 0.5})
    first._ledger.write(now=True)
    again = searcher_of(spec)
    configs = [again.suggest(f"b{launch}") for launch in range(5)]
    numbers = [(one["number"], one["is_replay"]) for one in configs if isinstance(one, dict)]
    assert numbers == [(2, True), (4, True), (0, False), (1, False), (3, False)]


def test_a_trial_whose_process_is_lost_is_handed_out_again_as_often_as_the_base_allows(
    searcher_of: Callable[[SearchSpec], TrialSearcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_searcher, "PAUSE_SECONDS", 0.0)
    base = {"preset": "tiny", "training": {"max_failures": 2}}
    searcher = searcher_of(search(base=base, space=WEIGHTS, searcher={"type": "grid"}))
    for attempt in ("a", "b", "c"):
        config = searcher.suggest(attempt)
        assert isinstance(config, dict)
        assert config["number"] == 0
        searcher.on_trial_complete(attempt, error=True)
    assert (searcher._ledger[0].state, searcher._ledger[0].reason) == ("FAILED", "its process was lost (3 times)")
    config = searcher.suggest("d")
    assert isinstance(config, dict)
    assert config["number"] == 1


def test_while_a_trial_runs_that_may_be_lost_there_may_be_more(
    searcher_of: Callable[[SearchSpec], TrialSearcher],
) -> None:
    space = {"objective.discriminator_weight": {"type": "grid", "values": [1]}}
    searcher = searcher_of(search(space=space, searcher={"type": "grid"}))
    searcher.suggest("a")
    assert searcher.suggest("b") is None
    searcher.on_trial_complete("a", {"rung": 0, "score": 0.5})
    assert searcher.suggest("c") == TrialSearcher.FINISHED


def test_a_space_with_few_points_is_exhausted(searcher_of: Callable[[SearchSpec], TrialSearcher]) -> None:
    space = {"objective.discriminator_weight": {"type": "choice", "values": [1, 10]}}
    spec = search(space=space, searcher={"type": "random"}, num_trials=50)
    points = handed_out(searcher_of(spec))
    assert sorted(number(one, "objective.discriminator_weight") for one in points) == [1, 10]


FEW: dict[str, dict[str, Any]] = {
    "choices": {
        RATE: {"type": "choice", "values": [1, 2, 5, 10, 50]},
        RATIO: {"type": "choice", "values": [0.25, 0.5, 0.75, 1.0]},
    },
    "ints": {RATE: {"type": "int", "low": 1, "high": 20}},
    "steps": {RATE: {"type": "int", "low": 1, "high": 60, "step": 3}},
    "conditions": {
        "model.sharing": {"type": "choice", "values": ["embeddings", "none"]},
        RATE: {"type": "int", "low": 1, "high": 19, "when": {"model.sharing": ["embeddings"]}},
    },
}
"""Spaces of twenty points."""


@pytest.mark.parametrize("num_trials", [16, 20, 50])
@pytest.mark.parametrize("searcher", ["tpe", "random"])
@pytest.mark.parametrize("space", FEW)
def test_every_point_of_a_small_space_is_tried_where_there_are_trials_for_it(
    searcher_of: Callable[[SearchSpec], TrialSearcher], space: str, searcher: str, num_trials: int
) -> None:
    """The estimator would propose what it believes in again and again: points that were tried are no news to it."""
    spec = search(space=FEW[space], searcher={"type": searcher}, num_trials=num_trials)
    points = scored_out(searcher_of(spec))
    assert len({repr(sorted(one.items())) for one in points}) == len(points) == min(20, num_trials)


def test_what_an_earlier_attempt_tried_is_not_left_any_more(
    searcher_of: Callable[[SearchSpec], TrialSearcher],
) -> None:
    first = searcher_of(search(space=FEW["choices"], num_trials=9))
    begun = scored_out(first)
    first._ledger.write(now=True)
    points = scored_out(searcher_of(search(space=FEW["choices"], num_trials=50)))
    assert points[: len(begun)] == begun
    assert len({repr(sorted(one.items())) for one in points}) == len(points) == 20


def test_a_sampler_that_is_stuck_in_a_space_without_end_draws_at_random(
    searcher_of: Callable[[SearchSpec], TrialSearcher],
) -> None:
    """Of half of the points the rate does not count, so that they are all one; it is the best, too."""
    space = {
        "model.sharing": {"type": "choice", "values": ["none", "embeddings"]},
        RATE: {"type": "uniform", "low": 1, "high": 100, "when": {"model.sharing": ["embeddings"]}},
    }
    spec = search(space=space, searcher={"type": "tpe", "num_startup_trials": 2}, num_trials=60)
    points = scored_out(searcher_of(spec), lambda point: float(point["model.sharing"] == "none"))
    assert len(points) == 60


def test_a_space_whose_points_are_hardly_ever_specs_ends(searcher_of: Callable[[SearchSpec], TrialSearcher]) -> None:
    """Numbers of which no two are alike are not gone through for ever; the one that would do is at the end."""
    space = {RATIO: {"type": "uniform", "low": -1000, "high": 0.0625}}
    searcher = searcher_of(search(space=space, searcher={"type": "random"}, num_trials=2))
    assert handed_out(searcher) == []
    assert searcher.suggest("again") == TrialSearcher.FINISHED


@pytest.mark.parametrize("searcher", ["grid", "random"])
def test_an_attempt_that_starts_again_after_many_trials_goes_on(
    searcher_of: Callable[[SearchSpec], TrialSearcher], monkeypatch: pytest.MonkeyPatch, searcher: str
) -> None:
    """Proposers begin from their start: as many points as were begun are repeats, and no sign of an end."""
    monkeypatch.setattr(tune_searcher, "MAX_REPEATS", 5)
    uniform = {"objective.discriminator_weight": {"type": "uniform", "low": 1, "high": 100}}
    spaces: dict[str, dict[str, Any]] = {"grid": {"space": WEIGHTS}, "random": {"space": uniform, "num_trials": 12}}
    spec = search(**spaces[searcher], searcher={"type": searcher})
    assert len(handed_out(searcher_of(spec), 8)) == 8
    assert len(handed_out(searcher_of(spec))) == 12


def test_an_invalid_point_is_put_down_once_for_all_attempts(
    searcher_of: Callable[[SearchSpec], TrialSearcher],
) -> None:
    space = {"model.num_attention_heads": {"type": "grid", "values": [2, 3, 4]}}
    spec = search(space=space, searcher={"type": "grid"})
    handed_out(searcher_of(spec))
    again = searcher_of(spec)
    handed_out(again)
    assert [one.state for one in again._ledger.trials].count("INVALID") == 1
