"""Searches before they start: trials' specs, equal budgets, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pipelines.specs.plan import flops_until
from pipelines.specs.search import SearchSpec
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
