"""Searches before they start: trials' specs, equal budgets, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pipelines.specs.plan import flops_until
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point, Value
from pipelines.specs.spec_errors import SpecError
from pipelines.specs.trials import check_search, nested, trial_spec

LAMBDA = {"objective.discriminator_weight": {"type": "log_uniform", "low": 1, "high": 100}}
RATIOS = {"model.generator_size_ratio": {"type": "choice", "values": [0.25, 0.5, 1.0]}}


def search(**fields: Any) -> SearchSpec:
    given = {
        "kind": "search",
        "base": {"preset": "tiny"},
        "space": LAMBDA | RATIOS,
        "objective": {"type": "fixed_corruption"},
        "budget": {"flops": 1e12},
    }
    return SearchSpec.model_validate({**given, **fields})


def test_equal_flops_buy_a_larger_generator_fewer_steps() -> None:
    made = search()
    specs = [trial_spec(made, {"model.generator_size_ratio": ratio}) for ratio in (0.25, 0.5, 1.0)]
    steps = [spec.training.num_train_steps for spec in specs]
    assert steps[0] > steps[1] > steps[2]
    for spec in specs:
        spent = flops_until(spec, 4096, spec.training.num_train_steps)
        assert spent == pytest.approx(1e12, rel=2e-2)
        assert spent <= 1e12


@pytest.mark.parametrize(("budget", "steps"), [({"steps": 123}, 123), ({"tokens": 102_400}, 100)])
def test_budgets_in_steps_and_in_tokens(budget: dict[str, int], steps: int) -> None:
    assert trial_spec(search(budget=budget), {}).training.num_train_steps == steps


def test_warmup_keeps_its_share_unless_it_is_searched() -> None:
    made = search(budget={"steps": 700}, space={"optimizer.warmup_steps": {"type": "int", "low": 1, "high": 600}})
    assert trial_spec(made, {}).optimizer.warmup_steps == 50
    assert trial_spec(made, {"optimizer.warmup_steps": 600}).optimizer.warmup_steps == 600


SHORT_BASE = {"preset": "tiny", "training": {"num_train_steps": 100}, "optimizer": {"warmup_steps": 10}}
STABLE: dict[str, Value] = {"optimizer.schedule": "warmup_stable_decay", "optimizer.decay_fraction": 0.5}


def test_a_warmup_that_the_budget_pays_for_may_be_longer_than_the_bases_training() -> None:
    warmup = {"optimizer.warmup_steps": {"type": "choice", "values": [50, 150]}}
    made = search(base=SHORT_BASE, budget={"steps": 1000}, space=warmup)
    assert trial_spec(made, {"optimizer.warmup_steps": 150}).optimizer.warmup_steps == 150
    assert check_search(made).num_invalid == 0


def test_a_warmup_that_the_budget_does_not_pay_for_is_invalid_by_the_trials_own_steps() -> None:
    """300 of the base's 7 000 steps were fine."""
    warmup = {"optimizer.warmup_steps": {"type": "choice", "values": [50, 300]}}
    report = check_search(search(budget={"steps": 200}, space=warmup))
    assert 0 < report.num_invalid < report.num_looked_at
    assert "must be less than training.num_train_steps, got 300 and 200" in report.problems[0]


def test_of_a_large_space_a_thousand_points_are_looked_at() -> None:
    """Each takes a millisecond of whoever asks, and a service has others waiting."""
    weights = {"objective.discriminator_weight": {"type": "grid", "values": list(range(1, 51))}}
    rates = {"optimizer.learning_rate": {"type": "grid", "values": [k / 1e4 for k in range(1, 50)]}}
    grid = search(space=weights | rates, searcher={"type": "grid"}, final=None)
    assert check_search(grid).num_looked_at == 1000
    assert check_search(search()).num_looked_at == 3 + 2 + 64


def test_a_warmup_and_a_decay_fit_into_the_trials_own_steps() -> None:
    point: Point = STABLE | {"optimizer.warmup_steps": 80}
    longer = trial_spec(search(base=SHORT_BASE, budget={"steps": 1000}), point)
    assert (longer.optimizer.warmup_steps, longer.optimizer.decay_steps(1000)) == (80, 500)
    with pytest.raises(SpecError, match=r"must fit into .* got 80, 60 and 120$"):
        trial_spec(search(budget={"steps": 120}), point)


@pytest.mark.parametrize("fraction", [0.002, 0.998])
def test_two_stages_switch_within_the_trials_own_steps(fraction: float) -> None:
    """Of 100 steps one stage would have none."""
    point: Point = {"objective.name": "two_stage", "objective.two_stage_switch_fraction": fraction}
    longer = trial_spec(search(base=SHORT_BASE, budget={"steps": 1000}), point)
    assert longer.objective.stage_starts(1000) == (0, round(fraction * 1000))
    with pytest.raises(SpecError, match=f"must leave each stage a step .* got {fraction:g} of 100"):
        trial_spec(search(budget={"steps": 100}), point)


def test_flops_of_two_stages_are_those_of_the_trials_own_switch() -> None:
    made = search(budget={"flops": 1e13}, base=SHORT_BASE)
    early, late = (
        trial_spec(made, {"objective.name": "two_stage", "objective.two_stage_switch_fraction": fraction})
        for fraction in (0.002, 0.9)
    )
    assert early.training.num_train_steps != late.training.num_train_steps
    for spec in (early, late):
        assert flops_until(spec, 4096, spec.training.num_train_steps) == pytest.approx(1e13, rel=1e-2)


def test_the_space_check_says_the_least_and_the_most_that_a_trial_takes() -> None:
    """The base's generator is of a quarter; without a final round it is no trial."""
    points: list[Point] = [{"model.generator_size_ratio": 0.5}, {"model.generator_size_ratio": 1.0}]
    ratios = {"model.generator_size_ratio": {"type": "choice", "values": [0.5, 1.0]}}
    made = search(budget={"steps": 100}, space=ratios)
    half, whole = (flops_until(trial_spec(made, point), 4096, 100) for point in points)
    assert check_search(made).flops == (flops_until(trial_spec(made, {}), 4096, 100), whole)
    assert check_search(search(budget={"steps": 100}, space=ratios, final=None)).flops == (half, whole)


def test_what_an_objective_changes_elsewhere_is_changed_in_its_trials() -> None:
    """BERT's shares with `mlm`: the base is laid over an objective's defaults anew for each trial."""
    made = search(space={"objective.name": {"type": "choice", "values": ["electra", "mlm"]}})
    assert trial_spec(made, {"objective.name": "electra"}).masking.random_token_fraction == 0.0
    assert trial_spec(made, {"objective.name": "mlm"}).masking.random_token_fraction == 0.1


def test_points_become_sections() -> None:
    assert nested({"a.b": 1, "a.c": 2, "d.e": None}) == {"a": {"b": 1, "c": 2}, "d": {"e": None}}


def test_an_invalid_point_is_reported_and_the_others_are_tried() -> None:
    """Of all head counts only those that divide the width."""
    heads = {"model.num_attention_heads": {"type": "choice", "values": [3, 4, 8]}}
    report = check_search(search(space=heads))
    assert 0 < report.num_invalid < report.num_looked_at
    assert report.problems[0].startswith("model.num_attention_heads = 3: model: hidden_size must be a multiple")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"base": {"preset": "huge"}}, "base.preset: must be one of"),
        ({"base": {"preset": "tiny", "training": {"num_train_steps": 0}}}, "base.training.num_train_steps: "),
        ({"base": {"kind": "finetune"}}, "base.kind: must be 'pretrain' (got 'finetune')"),
        (
            {"space": {"corpus.validation_fraction": {"type": "uniform", "low": 0.1, "high": 0.2}}},
            "trials share the rest",
        ),
        (
            {"space": {"objective.lambda": {"type": "uniform", "low": 1, "high": 2}}},
            "must be a field of objective, one of name",
        ),
        (
            {"space": {"training.num_train_steps": {"type": "int", "low": 1, "high": 2}}},
            "must be absent: it follows from budget",
        ),
        (
            {"space": {"training.global_batch_size": {"type": "choice", "values": ["a", "b"]}}},
            "space.training.global_batch_size: Input should be a valid integer",
        ),
        (
            {"space": {"masking.mask_fraction": {"type": "uniform", "low": 2, "high": 3}}},
            "space.masking.mask_fraction: ",
        ),
        ({"budget": {"flops": 1e6}}, "budget.flops: must pay for at least 10 steps of a trial (got 1e+06)"),
    ],
)
def test_a_search_that_cannot_be_is_refused_before_it_starts(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_search(search(**fields))
    assert str(caught.value).startswith(expected) or f": {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"budget": {}}, "one of flops, tokens and steps must be given, got none"),
        ({"budget": {"flops": 1e12, "steps": 5}}, "got flops and steps"),
        ({"scheduler": {"type": "pbt"}}, "scheduler.type must not be 'pbt', which changes settings in mid-training"),
        ({"searcher": {"type": "grid"}}, "space must have grids alone where searcher.type is 'grid', got objective"),
        ({"searcher": {"type": "cma"}}, "space must have numbers alone where searcher.type is 'cma', got model"),
        (
            {"space": {"masking.mask_fraction": {"type": "grid", "values": [0.1, 0.2]}}},
            "must have no grids where searcher.type is 'tpe'",
        ),
        ({"final": {"seeds": [1]}}, "at least 2 items"),
        ({"final": {"seeds": [1, 1]}}, "seeds must all be different, got 1, 1"),
        ({"objective": {"type": "loss"}}, "Input tag 'loss'"),
    ],
)
def test_what_contradicts_itself_is_no_search(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        search(**fields)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("model.generator_size_ratio", "the generator"),
        ("masking.mask_fraction", "the mask"),
        ("objective.temperature", "the temperature"),
    ],
)
def test_rulers_that_the_space_bends_are_refused(path: str, what: str) -> None:
    space = {path: {"type": "uniform", "low": 0.2, "high": 0.5}}
    measured = {"type": "training_metric", "metric": "discriminator_loss"}
    with pytest.raises(
        ValidationError, match=rf"must not be 'training_metric' where the space changes {what} \({path}\)"
    ):
        search(space=space, objective=measured)
    assert search(space=LAMBDA, objective=measured).objective.type == "training_metric"
