"""Warnings of a plan: what a spec may say and hardly means."""

from __future__ import annotations

import pytest

from pipelines.specs.advice import search_warnings
from pipelines.specs.parsing import load_spec
from pipelines.specs.plan import plan_job
from pipelines.specs.presets import PRESETS
from pipelines.specs.search import SearchSpec
from pipelines.specs.trials import check_search, trial_spec

SEARCH = """
kind: search
base: {preset: tiny, compute: {num_workers: 1}}
objective:
  type: probe
  tasks: {a: {type: classification, data: {train: a.csv, validation: b.csv}}}
  training: {max_sequence_length: 64}
"""


def warned(space: str, *overrides: str, budget: str = "steps: 100") -> tuple[str, ...]:
    """What is said of a search."""
    spec = load_spec(f"{SEARCH}space: {{{space}}}\nbudget: {{{budget}}}", overrides)
    assert isinstance(spec, SearchSpec)
    return search_warnings(spec, trial_spec(spec, {}), check_search(spec).flops)


@pytest.mark.parametrize("name", PRESETS)
def test_the_presets_draw_no_warning(name):
    assert plan_job(PRESETS[name]()).warnings == ()


@pytest.mark.parametrize("sharing", ["none", "gdes"])
def test_a_weight_without_anything_shared_is_warned_of(sharing):
    (warning,) = plan_job(load_spec("kind: pretrain", [f"model.sharing={sharing}"])).warnings
    assert warning.startswith("objective.discriminator_weight (50) does next to nothing with model.sharing: " + sharing)


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.sharing=all", "model.generator_size_ratio=1"],
        ["model.sharing=none", "objective.discriminator_weight=0"],
        ["objective.name=two_stage"],
    ],
)
def test_a_weight_that_decides_something_is_not(overrides):
    assert plan_job(load_spec("kind: pretrain", overrides)).warnings == ()


def test_weights_that_two_stages_replace_are_warned_of():
    weights = ["tokenizer={type: pretrained, uri: /v}", "initialization={type: checkpoint, uri: /job}"]
    (warning,) = plan_job(load_spec("kind: pretrain", ["objective.name=two_stage", *weights])).warnings
    assert warning.startswith("initialization gives the discriminator weights that objective.name: two_stage replaces")


def test_a_plan_counts_what_is_not_shared():
    plans = {
        sharing: plan_job(load_spec("kind: pretrain\nmodel: {generator_size_ratio: 1}", [f"model.sharing={sharing}"]))
        for sharing in ("none", "embeddings", "all", "gdes")
    }
    assert len({(p.discriminator_parameters, p.generator_parameters) for p in plans.values()}) == 1
    total = {sharing: plan.trainable_parameters for sharing, plan in plans.items()}
    assert total["all"] < total["embeddings"] < total["none"] == total["gdes"]


@pytest.mark.parametrize(
    ("space", "budget"),
    [
        ("model.generator_size_ratio: {type: choice, values: [0.25, 1]}", "steps: 100"),
        ("objective.name: {type: choice, values: [electra, mlm]}", "steps: 100"),
        ("objective.generator: {type: choice, values: [transformer, unigram]}", "tokens: 102400"),
        ("masking.mask_fraction: {type: uniform, low: 0.1, high: 0.4}", "tokens: 102400"),
        ("training.sequence_length: {type: choice, values: [32, 64]}", "steps: 100"),
        ("training.global_batch_size: {type: choice, values: [16, 32]}", "steps: 100"),
    ],
)
def test_trials_of_unequal_flops_are_warned_of(space, budget):
    (warning,) = warned(space, budget=budget)
    assert warning.startswith("budget is not in FLOPs, and a trial may take ")


def test_the_warning_says_how_unequal_they_are():
    (warning,) = warned("training.global_batch_size: {type: choice, values: [16, 40]}")
    assert " may take 2.5 times the computing of another" in warning


def test_a_base_that_is_trained_beside_them_is_a_trial_too():
    """The only point is dearer than the base; alone it is equal to itself."""
    grid = "training.global_batch_size: {type: grid, values: [32]}"
    (warning,) = warned(grid, "searcher.type=grid")
    assert " may take 2 times " in warning
    assert warned(grid, "searcher.type=grid", "final=null") == ()


@pytest.mark.parametrize(
    ("space", "budget"),
    [
        ("model.hidden_dropout_prob: {type: uniform, low: 0, high: 0.2}", "steps: 100"),
        ("model.num_attention_heads: {type: choice, values: [2, 4]}", "steps: 100"),
        ("objective.discriminator_weight: {type: log_uniform, low: 1, high: 100}", "steps: 100"),
        ("training.global_batch_size: {type: choice, values: [16, 32]}", "tokens: 102400"),
        ("model.generator_size_ratio: {type: choice, values: [0.25, 1]}", "flops: 1e12"),
    ],
)
def test_trials_of_equal_flops_are_not(space, budget):
    assert warned(space, budget=budget) == ()


RATE = "optimizer.learning_rate: {type: log_uniform, low: 1.0e-4, high: 1.0e-3}"


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "median_stopping"])
def test_a_searcher_that_learns_from_ends_alone_is_warned_of_what_stops_trials(scheduler):
    (warning,) = warned(RATE, "searcher.type=cma", f"scheduler.type={scheduler}")
    assert warning.startswith("searcher.type is 'cma', which learns from trials that came to their ends alone, and ")
    assert f"scheduler.type '{scheduler}' stops most of them" in warning


def test_it_is_not_where_nothing_stops_them_and_others_are_not():
    assert warned(RATE, "searcher.type=cma", "scheduler.type=none") == ()
    assert warned(RATE, "searcher.type=tpe", "scheduler.type=asha") == ()
