"""Who chooses the points: grids in order, Optuna's samplers by their seeds, and what these learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest
from pydantic import TypeAdapter
from training_task import write_corpus

from pipelines.job import JobDirectory
from pipelines.searching import tune_searcher
from pipelines.searching.ledger import Ledger
from pipelines.searching.suggest import Ending, ListProposer, OptunaProposer, Proposal, proposer_of
from pipelines.searching.trial import RungResult, SearchContext
from pipelines.searching.tune_searcher import TrialSearcher
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.search import SearcherSpec, SearchSpec
from pipelines.specs.space import Point, Space, Value
from pipelines.specs.trials import trial_spec

Searcher = Literal["random", "tpe", "cma"]
RATE, RATIO = "objective.discriminator_weight", "model.generator_size_ratio"
SAMPLERS: tuple[Searcher, ...] = ("random", "tpe", "cma")
NUMBERS = {"a.x": {"type": "uniform", "low": -1, "high": 1}, "a.y": {"type": "log_uniform", "low": 0.01, "high": 1}}
WORDS = {
    "b.on": {"type": "choice", "values": [True, False]},
    "b.size": {"type": "int", "low": 8, "high": 64, "step": 16, "when": {"b.on": [True]}},
    "b.many": {"type": "int", "low": 1, "high": 100, "log": True},
}


def made(dimensions: dict[str, Any]) -> Any:
    return TypeAdapter(Space).validate_python(dimensions)


def proposer(
    dimensions: dict[str, Any],
    searcher: Searcher = "random",
    mode: Literal["max", "min"] = "max",
    seed: int = 0,
    startup: int = 4,
) -> OptunaProposer:
    return OptunaProposer(made(dimensions), SearcherSpec(type=searcher, seed=seed, num_startup_trials=startup), mode)


def played(
    given: OptunaProposer, count: int, score: Callable[[Point], float], how: Ending = "COMPLETED"
) -> list[dict[str, Value]]:
    """Points, each told of before the next is asked for."""
    points = []
    for _ in range(count):
        token, point, _ = given.next()
        value = score(point)
        given.reached(token, 0, value)
        given.ended(token, value, how)
        points.append(point)
    return points


def number(point: Point, path: str) -> float:
    value = point[path]
    assert isinstance(value, int | float)
    return float(value)


def search(**fields: Any) -> SearchSpec:
    given = {"kind": "search", "base": {"preset": "tiny"}, "objective": {"type": "fixed_corruption"}}
    spec = resolve_spec({**given, "budget": {"flops": 1e12}, **fields})
    assert isinstance(spec, SearchSpec)
    return spec


def test_a_grid_is_gone_through_in_order_and_then_ends() -> None:
    space = {
        "objective.discriminator_weight": {"type": "grid", "values": [1, 50]},
        "model.generator_size_ratio": {"type": "grid", "values": [0.25, 0.5]},
    }
    chosen = proposer_of(search(space=space, searcher={"type": "grid"}), "max")
    points = []
    while (proposal := chosen.next()) is not None:
        points.append((proposal.point["objective.discriminator_weight"], proposal.point["model.generator_size_ratio"]))
        chosen.ended(proposal.token, None, "FAILED")
    assert points == [(1, 0.25), (1, 0.5), (50, 0.25), (50, 0.5)]
    assert chosen.next() is None


@pytest.mark.parametrize("searcher", ["random", "tpe", "cma"])
def test_every_other_searcher_is_optunas(searcher: str) -> None:
    space = {"objective.discriminator_weight": {"type": "log_uniform", "low": 1, "high": 100}}
    assert isinstance(proposer_of(search(space=space, searcher={"type": searcher}), "max"), OptunaProposer)


def test_a_list_is_handed_out_once_with_its_seeds() -> None:
    listed = ListProposer([Proposal(None, {"a.b": 1}, 7), Proposal(None, {}, 8)])
    assert [listed.next(), listed.next(), listed.next()] == [(None, {"a.b": 1}, 7), (None, {}, 8), None]


@pytest.mark.parametrize("searcher", SAMPLERS)
def test_a_seed_gives_the_same_points_again_and_another_seed_others(searcher: Searcher) -> None:
    """Of `tpe` and `cma` also those that they have learned: only four of twelve are random."""

    def points(seed: int) -> list[dict[str, Value]]:
        return played(proposer(NUMBERS, searcher, seed=seed), 12, lambda point: -(number(point, "a.x") ** 2))

    assert points(3) == points(3)
    assert points(3) != points(4)


def test_points_lie_where_the_space_says() -> None:
    points = played(proposer(NUMBERS | WORDS), 200, lambda point: 0.0)
    assert all(-1 <= number(one, "a.x") <= 1 for one in points)
    assert all(0.01 <= number(one, "a.y") <= 1 for one in points)
    # The step does not end at 64: the last number is below it.
    assert {one["b.size"] for one in points if "b.size" in one} == {8, 24, 40, 56}
    assert {type(one["b.on"]) for one in points} == {bool}
    many = [number(one, "b.many") for one in points]
    assert 70 < sum(value <= 10 for value in many) < 130, "each order of magnitude is as likely"
    assert min(many) == 1
    assert 90 < max(many) <= 100


def test_a_dimension_whose_condition_does_not_hold_is_absent() -> None:
    points = played(proposer(NUMBERS | WORDS), 100, lambda point: 0.0)
    assert {("b.size" in one) == one["b.on"] for one in points} == {True}
    assert {one["b.on"] for one in points} == {True, False}


def test_conditions_are_asked_after_what_they_name_wherever_they_stand() -> None:
    space = {"a.last": {"type": "choice", "values": [1, 2], "when": {"b.mid": ["on"]}}}
    space |= {"b.mid": {"type": "choice", "values": ["on", "off"], "when": {"c.first": [True]}}}
    space |= {"c.first": {"type": "choice", "values": [True, False]}}
    kinds = {tuple(one) for one in played(proposer(space), 60, lambda point: 0.0)}
    assert kinds == {("c.first",), ("c.first", "b.mid"), ("c.first", "b.mid", "a.last")}


@pytest.mark.parametrize("searcher", SAMPLERS)
def test_a_point_of_an_earlier_attempt_is_taken_up_as_it_was(searcher: Searcher) -> None:
    """To the last bit, so that its training is the same."""
    space = NUMBERS if searcher == "cma" else NUMBERS | WORDS
    earlier = played(proposer(space, searcher), 10, lambda point: number(point, "a.x"))
    later = proposer(space, searcher)
    for point in earlier:
        token = later.again(point)
        assert token.params == point
        later.ended(token, number(point, "a.x"), "COMPLETED")


def test_what_an_earlier_attempt_knew_is_learned_from() -> None:
    """From its points alone, without one of its own, the estimator goes where these were good."""
    later = proposer(NUMBERS, "tpe", startup=8)
    for k in range(30):
        point: dict[str, Value] = {"a.x": -0.95 + 0.065 * k, "a.y": 0.1}
        later.ended(later.again(point), -abs(number(point, "a.x") - 0.8), "COMPLETED")
    near = 0
    for _ in range(20):
        token, proposed, _ = later.next()
        near += abs(number(proposed, "a.x") - 0.8) < 0.3
        later.ended(token, None, "FAILED")
    assert near >= 12, "of random points five are so near"


@pytest.mark.parametrize("searcher", ["tpe", "cma"])
@pytest.mark.parametrize(("mode", "sign"), [("max", -1), ("min", 1)])
def test_they_go_where_scores_are_better(searcher: Searcher, mode: Literal["max", "min"], sign: int) -> None:
    given = proposer(NUMBERS, searcher, mode)
    points = played(given, 60, lambda point: sign * (number(point, "a.x") - 0.7) ** 2)
    late = [abs(number(point, "a.x") - 0.7) for point in points[-20:]]
    assert sorted(late)[10] < 0.25, "half of random points are further than 0.65"


def test_a_stopped_point_counts_by_how_far_it_came() -> None:
    """All are stopped on the way, as with a scheduler, and still the estimator finds the better half."""
    given = proposer(NUMBERS, "tpe")
    points = played(given, 60, lambda point: -((number(point, "a.x") + 0.5) ** 2), "STOPPED")
    late = [abs(number(point, "a.x") + 0.5) for point in points[-20:]]
    assert sorted(late)[10] < 0.25


@pytest.mark.parametrize("how", ["STOPPED", "INVALID"])
def test_what_ends_without_a_score_is_kept_away_from(how: Ending) -> None:
    """Negative numbers diverge, or are no spec; of the others all are as good."""
    given = proposer(NUMBERS, "tpe")
    points = []
    for _ in range(80):
        token, point, _ = given.next()
        is_good = number(point, "a.x") > 0
        if is_good:
            given.reached(token, 0, 1.0)
        given.ended(token, 1.0 if is_good else None, "COMPLETED" if is_good else how)
        points.append(point)
    assert sum(number(point, "a.x") > 0 for point in points[-30:]) > 22, "of random points 15"


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_what_diverged_late_is_kept_away_from_however_well_it_began(mode: Literal["max", "min"], sign: int) -> None:
    """Negative numbers come to two good scores and diverge; the others are stopped at their first, which is worse."""
    given = proposer(NUMBERS, "tpe", mode)
    points = []
    for _ in range(80):
        token, point, _ = given.next()
        is_lasting = number(point, "a.x") > 0
        for rung in range(1 if is_lasting else 2):
            given.reached(token, rung, sign * (1.0 if is_lasting else 9.0))
        given.ended(token, sign * 1.0 if is_lasting else None, "STOPPED")
        points.append(point)
    assert sum(number(point, "a.x") > 0 for point in points[-30:]) > 22, "of random points 15"


def test_what_failed_teaches_nothing() -> None:
    """A lost process says nothing of its point: the points after it are those without it."""

    def points(num_failed: int) -> list[dict[str, Value]]:
        given = proposer(NUMBERS, "tpe", startup=2)
        played(given, 4, lambda point: number(point, "a.x"))
        for _ in range(num_failed):
            given.ended(given.again({"a.x": -1.0, "a.y": 1.0}), None, "FAILED")
        return played(given, 3, lambda point: number(point, "a.x"))

    assert points(0) == points(5)


def test_what_is_being_tried_is_not_proposed_again() -> None:
    """Points that are asked for side by side differ: nothing is known of any of them yet."""
    given = proposer(NUMBERS, "tpe", startup=2)
    played(given, 10, lambda point: number(point, "a.x"))
    points = [given.next().point for _ in range(8)]
    assert len({tuple(point.items()) for point in points}) == 8


@pytest.mark.parametrize(
    ("score", "how", "state"),
    [
        (0.5, "COMPLETED", optuna.trial.TrialState.COMPLETE),
        (0.5, "STOPPED", optuna.trial.TrialState.PRUNED),
        (None, "STOPPED", optuna.trial.TrialState.PRUNED),
        (None, "INVALID", optuna.trial.TrialState.PRUNED),
        (None, "FAILED", optuna.trial.TrialState.FAIL),
        (float("nan"), "COMPLETED", optuna.trial.TrialState.PRUNED),
        (float("inf"), "COMPLETED", optuna.trial.TrialState.PRUNED),
    ],
)
@pytest.mark.parametrize("searcher", SAMPLERS)
def test_every_ending_is_one_that_optuna_knows(
    searcher: Searcher, score: float | None, how: Ending, state: optuna.trial.TrialState
) -> None:
    given = proposer(NUMBERS, searcher, startup=1)
    for _ in range(3):
        token = given.next().token
        given.ended(token, score, how)
        assert token.study.get_trials(deepcopy=False)[token.number].state is state
    assert given.next().point.keys() == NUMBERS.keys()


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
