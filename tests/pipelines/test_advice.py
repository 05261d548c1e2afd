"""Warnings of a plan: what a spec may say and hardly means."""

from __future__ import annotations

import pytest

from pipelines.specs.parsing import load_spec
from pipelines.specs.plan import plan_job
from pipelines.specs.presets import PRESETS


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
