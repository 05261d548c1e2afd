"""Searches that cannot be, refused before anything starts: which field, which rule, which value."""

from __future__ import annotations

import pytest
from search_texts import SECTIONS, refused, text

from pipelines.specs.parsing import load_spec
from pipelines.specs.search import SearchSpec
from pipelines.specs.spec_errors import SpecError


def test_as_it_stands_the_search_is_good() -> None:
    assert isinstance(load_spec(text()), SearchSpec)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        # what is no field
        (
            "model.hidden_sise: {type: choice, values: [64, 128]}",
            "space.model.hidden_sise: must be a field of model; did you mean model.hidden_size?",
        ),
        (
            "corpus.validation_fraction: {type: uniform, low: 0.1, high: 0.2}",
            "space.corpus.validation_fraction: must be a field of model, objective, masking, optimizer, training: "
            "trials share the rest",
        ),
        (
            "compute.num_workers: {type: choice, values: [1, 2]}",
            "space.compute.num_workers: must be a field of model, objective, masking, optimizer, training: ",
        ),
        (
            "seed: {type: choice, values: [1, 2]}",
            "space.seed: must name a section and a field, as objective.discriminator_weight does, got 'seed'",
        ),
        # what follows from the budget, or changes nothing
        (
            "training.curriculum: {type: choice, values: [1, 2]}",
            "space.training.curriculum: must be absent: it has steps of its own, where a trial's follow from budget",
        ),
        (
            "training.num_train_steps: {type: int, low: 100, high: 200}",
            "space.training.num_train_steps: must be absent: it follows from budget",
        ),
        (
            "training.log_interval_steps: {type: int, low: 1, high: 9}",
            "space.training.log_interval_steps: must be absent: it changes no weight",
        ),
        # dimensions
        (
            "optimizer.learning_rate: {type: uniform, low: 0.1, high: 0.1}",
            "space.optimizer.learning_rate: low must be less than high, got 0.1 and 0.1",
        ),
        (
            "optimizer.learning_rate: {type: log_uniform, low: 0.2, high: 0.1}",
            "space.optimizer.learning_rate: low must be less than high, got 0.2 and 0.1",
        ),
        (
            "optimizer.warmup_steps: {type: int, low: 7, high: 7}",
            "space.optimizer.warmup_steps: low must be less than high, got 7 and 7",
        ),
        (
            "optimizer.learning_rate: {type: log_uniform, low: 0, high: 0.1}",
            "space.optimizer.learning_rate.low: Input should be greater than 0 (got 0)",
        ),
        (
            "optimizer.warmup_steps: {type: int, low: 0, high: 10, log: true}",
            "space.optimizer.warmup_steps: low must be at least 1 and step 1 where log is true, got 0 and 1",
        ),
        # numbers that no sampler can draw from
        (
            "optimizer.warmup_steps: {type: int, low: 0, high: 9007199254740993}",
            "space.optimizer.warmup_steps.high: Input should be less than or equal to 9007199254740992",
        ),
        (
            "objective.discriminator_weight: {type: uniform, low: -1.7e+308, high: 1.7e+308}",
            "space.objective.discriminator_weight: high must be less than 1.8e+308 above low, got 1.7e+308 and",
        ),
        # to YAML 1e-3 is a word
        (
            "optimizer.learning_rate: {type: choice, values: [1e-3, 0.001]}",
            "space.optimizer.learning_rate: values must all be different, got 0.001 more than once",
        ),
        (
            "model.sharing: {type: choice, values: [all, none, all]}",
            "space.model.sharing: values must all be different, got 'all' more than once",
        ),
        ("model.sharing: {type: choice, values: [all]}", "space.model.sharing.values: Tuple should have at least 2"),
        ("model.sharing: {type: normal, values: [all]}", "space.model.sharing: Input tag 'normal' found"),
        # conditions
        (
            "model.sharing: {type: choice, values: [all, none], when: {objective.name: [mlm]}}",
            "spec: model.sharing.when must name paths of the space, got 'objective.name'",
        ),
        (
            "model.sharing: {type: choice, values: [all, none], when: {objective.generator: [unigram]}}, "
            "objective.generator: {type: choice, values: [transformer, unigram], when: {model.sharing: [all]}}",
            "spec: when must not go round in a circle, got one in model.sharing, objective.generator",
        ),
        (
            "model.sharing: {type: choice, values: [all, none]}, "
            "optimizer.learning_rate: {type: uniform, low: 0.1, high: 0.2, when: {model.sharing: [gdes]}}",
            "spec: optimizer.learning_rate.when must have values that model.sharing may have, got 'gdes'",
        ),
        (
            "optimizer.epsilon: {type: uniform, low: 0.1, high: 0.2}, "
            "optimizer.learning_rate: {type: uniform, low: 0.1, high: 0.2, when: {optimizer.epsilon: [0.1]}}",
            "spec: optimizer.learning_rate.when must name paths with a list of values, got 'optimizer.epsilon'",
        ),
        (
            "training.gradient_accumulation_steps: {type: choice, values: [1, 2]}",
            "space.training.gradient_accumulation_steps: must be absent: it changes no weight",
        ),
        (
            "training.seed: {type: choice, values: [1, 2]}",
            "space.training.seed: must be absent: it is noise: see final.seeds",
        ),
        # what no trial can have
        (
            "optimizer.warmup_steps: {type: int, low: 1000000, high: 2000000}",
            "space: optimizer.warmup_steps must be less than training.num_train_steps, got 1000000 and ",
        ),
        (
            "model.num_attention_heads: {type: choice, values: [3, 5]}",
            "space.model: hidden_size must be a multiple of num_attention_heads, got 128 and 3",
        ),
        (
            "optimizer.learning_rate: {type: uniform, low: 2, high: 3}",
            "space.optimizer.learning_rate: Input should be less than or equal to 1 (got 2.0)",
        ),
        (
            "optimizer.learning_rate: {type: choice, values: [fast, slow]}",
            "space.optimizer.learning_rate: Input should be a valid number, ",
        ),
    ],
)
def test_a_space_that_cannot_be_searched(space: str, expected: str) -> None:
    assert refused(space=f"{{{space}}}").startswith(expected)


@pytest.mark.parametrize(
    ("searcher", "space", "expected"),
    [
        (
            "{type: tpe}",
            "{model.sharing: {type: grid, values: [all, none]}}",
            "spec: space must have no grids where searcher.type is 'tpe', which chooses its points itself, "
            "got model.sharing; a choice has the same values",
        ),
        (
            "{type: random}",
            "{model.sharing: {type: grid, values: [all, none]}}",
            "spec: space must have no grids where searcher.type is 'random', which chooses its points itself, "
            "got model.sharing; a choice has the same values",
        ),
        (
            "{type: cma}",
            "{model.sharing: {type: choice, values: [all, none]}}",
            "spec: space must have numbers alone where searcher.type is 'cma', got model.sharing",
        ),
        (
            "{type: grid}",
            SECTIONS["space"],
            "spec: space must have grids alone where searcher.type is 'grid', got objective.discriminator_weight",
        ),
        ("{type: bohb}", SECTIONS["space"], "spec: searcher.type must not be 'bohb', which has no implementation "),
        ("{type: bayesopt}", SECTIONS["space"], "spec: searcher.type must not be 'bayesopt', which has no "),
        ("{type: guess}", SECTIONS["space"], "searcher.type: Input should be 'random', 'grid', 'tpe' or 'cma' (got "),
    ],
)
def test_a_searcher_that_does_not_fit_the_space(searcher: str, space: str, expected: str) -> None:
    assert refused(searcher=searcher, space=space).startswith(expected)


def test_a_grid_has_as_many_trials_as_points() -> None:
    grids = "{model.sharing: {type: grid, values: [all, none]}}"
    assert refused(searcher="{type: grid}", space=grids, num_trials="3").startswith(
        "spec: num_trials must be absent where searcher.type is 'grid', got 3"
    )


def test_a_grid_that_would_never_end() -> None:
    values = ", ".join(str(k / 1000) for k in range(1, 102))
    fields = ("learning_rate", "weight_decay")
    grids = ", ".join(f"optimizer.{field}: {{type: grid, values: [{values}]}}" for field in fields)
    assert refused(searcher="{type: grid}", space=f"{{{grids}}}").startswith(
        "spec: space must have at most 10000 combinations of its grids, got 10201"
    )


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        (
            "{type: pbt}",
            "spec: scheduler.type must not be 'pbt', which changes settings in mid-training: its winner is a schedule "
            "that no spec can write down and no final round can retrain. Take 'asha'",
        ),
        ("{type: pb2}", "spec: scheduler.type must not be 'pb2', which is population based training. Take 'asha'"),
        (
            "{type: bohb}",
            "spec: scheduler.type must not be 'bohb', which is a searcher and a scheduler in one. Take 'asha' with the "
            "searcher 'tpe', which is the same idea",
        ),
        ("{type: sha}", "scheduler: Input tag 'sha' found using 'type' does not match any of the expected tags"),
        ("{type: asha, min_fraction: 1}", "scheduler.min_fraction: Input should be less than 1 (got 1)"),
        (
            "{type: hyperband, num_brackets: 4, min_fraction: 0.04, reduction_factor: 3}",
            "spec: scheduler.num_brackets must be at most 3 with min_fraction 0.04 and reduction_factor 3, got 4",
        ),
    ],
)
def test_a_scheduler_that_cannot_be(scheduler: str, expected: str) -> None:
    assert refused(scheduler=scheduler).startswith(expected)


def test_as_many_brackets_as_there_are_rungs_are_allowed() -> None:
    load_spec(text(scheduler="{type: hyperband, num_brackets: 3, min_fraction: 0.04, reduction_factor: 3}"))


def test_every_scheduler_is_good_as_it_comes() -> None:
    for name in ("none", "asha", "median_stopping", "hyperband"):
        load_spec(text(scheduler=f"{{type: {name}}}"))


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("{}", "budget: one of flops, tokens and steps must be given, got none"),
        ("{flops: 1e+12, steps: 100}", "budget: one of flops, tokens and steps must be given, got flops and steps"),
        ("{flops: 1e+6}", "budget.flops: must pay for at least 10 steps of a trial (got 1e+06)"),
        ("{steps: 9}", "budget.steps: must pay for at least 10 steps of a trial (got 9)"),
        (
            f"{{tokens: 1{'0' * 400}}}",
            f"budget.tokens: must pay for at most 100,000,000 steps of a trial (got 1{'0' * 50}",
        ),
        ("{steps: 100000001}", "budget.steps: must pay for at most 100,000,000 steps of a trial (got 100000001)"),
        ("{flops: 1.0e+40}", "budget.flops: must pay for at most 100,000,000 steps of a trial (got 1e+40)"),
        ("{tokens: 1000}", "budget.tokens: must pay for at least 10 steps of a trial (got 1000)"),
        ("{flops: -1}", "budget.flops: Input should be greater than 0 (got -1)"),
        ("{hours: 3}", "budget.hours: is not a field here (got 3); the fields here are flops, tokens, steps"),
        ("", "budget: must be given"),
    ],
)
def test_a_budget_that_pays_for_nothing(budget: str, expected: str) -> None:
    assert refused(budget=budget).startswith(expected)


@pytest.mark.parametrize(
    ("path", "dimension", "what"),
    [
        ("model.generator_size_ratio", "{type: choice, values: [0.25, 0.5]}", "the generator"),
        ("objective.generator", "{type: choice, values: [transformer, unigram]}", "the generator"),
        ("model.sharing", "{type: choice, values: [all, none]}", "the generator"),
        ("model.hidden_size", "{type: choice, values: [64, 128]}", "the generator"),
        ("training.sequence_length", "{type: choice, values: [64, 128]}", "the held-out rows"),
        ("masking.mask_fraction", "{type: uniform, low: 0.1, high: 0.2}", "the mask"),
        ("objective.temperature", "{type: uniform, low: 0.5, high: 2}", "the temperature"),
    ],
)
def test_a_ruler_that_the_space_bends(path: str, dimension: str, what: str) -> None:
    space = f"{{{path}: {dimension}}}"
    found = refused(space=space, objective="{type: training_metric, metric: discriminator_loss}")
    expected = f"spec: objective.type must not be 'training_metric' where the space changes {what} ({path}): of "
    assert found.startswith(f"{expected}discriminator_loss, it is measured on what each trial's own generator wrote")
    found = refused(space=space, objective="{type: training_metric, metric: generator_loss}")
    assert found.startswith(f"{expected}generator_loss, it is lowest for the largest generator and the easiest masks")


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (
            {"base": "{preset: tiny, objective: {name: mlm}}"},
            "objective.type: must not be 'fixed_corruption' where objective.name may be 'mlm', which trains no "
            "discriminator; take 'probe'",
        ),
        (
            {"space": "{objective.name: {type: choice, values: [electra, mlm]}}"},
            "objective.type: must not be 'fixed_corruption' where objective.name may be 'mlm', which trains no ",
        ),
        (
            {
                "space": "{objective.name: {type: choice, values: [electra, electric]}}",
                "objective": "{type: fixed_corruption, metric: loss}",
            },
            "objective.metric: must be 'auc' where objective.name may be 'electric', whose head gives an energy ",
        ),
        (
            {
                "base": "{preset: tiny, objective: {name: replace_mlm}}",
                "objective": "{type: minimal_pairs, pairs: {uris: [pairs.jsonl]}}",
            },
            "objective.type: must not be 'minimal_pairs' where objective.name may be 'replace_mlm', which trains no ",
        ),
        (
            {
                "base": "{preset: tiny, objective: {name: mlm}}",
                "objective": "{type: training_metric, metric: discriminator_auc}",
            },
            "objective.metric: must be a figure that every trial has, and objective.name 'mlm' has no "
            "discriminator_auc (got 'discriminator_auc')",
        ),
        (
            {
                "base": "{preset: tiny, objective: {name: all_tokens_mlm}}",
                "objective": "{type: training_metric, metric: discriminator_loss}",
            },
            "objective.metric: must be a figure that every trial has, and objective.name 'all_tokens_mlm' has no "
            "discriminator_loss (got 'discriminator_loss')",
        ),
        (
            {
                "base": "{preset: tiny, objective: {generator: unigram}}",
                "objective": "{type: training_metric, metric: generator_loss}",
            },
            "objective.metric: must be a figure that every trial has, and objective.name 'electra' has no generator_",
        ),
        ({"objective": "{type: loss}"}, "objective: Input tag 'loss' found using 'type' does not match any of the "),
        (
            {"objective": "{type: training_metric, metric: speed}"},
            "objective.metric: Input should be 'discriminator_loss', 'discriminator_auc', 'discriminator_f1' or ",
        ),
        ({"objective": "{type: probe}"}, "objective.tasks: must be given"),
        (
            {"objective": "{type: probe, tasks: {a: {type: chess}}}"},
            "objective.tasks.a: Input tag 'chess' found using 'type' does not match any of the expected tags",
        ),
        (
            {"objective": "{type: fixed_corruption, reference_fraction: 0.09}", "budget": "{steps: 100}"},
            "objective.reference_fraction: must leave at least 10 of the base's 100 steps (got 0.09)",
        ),
        (
            {
                "objective": "{type: probe, tasks: {a: {type: classification, data: {train: a.csv, validation: "
                "b.csv}}}, training: {max_sequence_length: 1024}}"
            },
            "objective.training.max_sequence_length: must be at most model.max_position_embeddings, ",
        ),
        (
            {
                "objective": "{type: probe, tasks: {a: {type: classification, data: {train: a.csv, validation: b.csv}, "
                "num_epochs: 2}}, training: {num_train_steps: 70}}"
            },
            "objective: tasks.a.num_epochs must be absent where training.num_train_steps is given, got 2 and 70",
        ),
        (
            {
                "base": "{preset: tiny, objective: {name: two_stage}}",
                "space": "{optimizer.learning_rate: {type: log_uniform, low: 1e-4, high: 1e-3}}",
            },
            "scheduler.type: must be 'none' where objective.name may be 'two_stage', whose discriminator learns ",
        ),
        (
            {"objective": "{type: fixed_corruption, reference_fraction: 0}"},
            "objective.reference_fraction: Input should be greater than 0 (got 0)",
        ),
    ],
)
def test_an_objective_that_trials_do_not_have(sections: dict[str, str], expected: str) -> None:
    assert refused(**sections).startswith(expected)


def two_stages(num_rungs: int, switch: float, metric: str) -> str:
    return text(
        base=f"{{preset: tiny, objective: {{name: two_stage, two_stage_switch_fraction: {switch}}}}}",
        space="{optimizer.learning_rate: {type: log_uniform, low: 1e-4, high: 1e-3}}",
        scheduler=f"{{type: none, num_rungs: {num_rungs}}}",
        objective=f"{{type: training_metric, metric: {metric}}}",
    )


@pytest.mark.parametrize(("num_rungs", "switch"), [(2, 0.5), (2, 0.7), (4, 0.25)])
@pytest.mark.parametrize("metric", ["discriminator_loss", "discriminator_auc", "discriminator_f1"])
def test_a_rung_before_the_discriminator_is_trained(num_rungs: int, switch: float, metric: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(two_stages(num_rungs, switch, metric))
    assert str(caught.value) == (
        "scheduler.num_rungs: must leave the first rung behind base.objective.two_stage_switch_fraction "
        f"({switch:g}), before which there is no {metric} (got {num_rungs})"
    )


@pytest.mark.parametrize(
    ("num_rungs", "switch", "metric"),
    [(1, 0.5, "discriminator_auc"), (2, 0.4, "discriminator_auc"), (4, 0.5, "generator_loss")],
)
def test_rungs_at_which_every_trial_has_the_figure(num_rungs: int, switch: float, metric: str) -> None:
    load_spec(two_stages(num_rungs, switch, metric))


def test_all_paths_that_are_wrong_are_named_at_once() -> None:
    space = (
        "{modle.hidden_size: {type: choice, values: [1, 2]}, training.num_train_steps: {type: int, low: 1, high: 2}}"
    )
    assert [one.partition(":")[0] for one in refused(space=space).split("; ") if ":" in one] == [
        "space.modle.hidden_size",
        "space.training.num_train_steps",
    ]


def test_a_space_with_some_points_that_can_be_tried_is_searched() -> None:
    load_spec(text(space="{model.num_attention_heads: {type: choice, values: [3, 4]}}"))


def test_a_base_that_warms_up_until_its_last_step_has_a_reference_too() -> None:
    base = "{preset: tiny, optimizer: {warmup_steps: 40}, training: {num_train_steps: 41}}"
    load_spec(text(base=base, budget="{steps: 41}", objective="{type: fixed_corruption, reference_fraction: 0.3}"))
