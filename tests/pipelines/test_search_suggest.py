"""Who chooses the points: grids in order, Optuna's samplers by their seeds, and what these learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import optuna
import pytest
from pydantic import TypeAdapter
from search_texts import number, search

from pipelines.searching.suggest import Ending, ListProposer, OptunaProposer, Proposal, proposer_of
from pipelines.specs.search import SearcherSpec
from pipelines.specs.space import Point, Space, Value

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
