"""What a search starts from: bases, weights and seeds that its trials cannot have, and those that they can."""

from __future__ import annotations

import pytest
from search_texts import refused, text

from pipelines.specs.parsing import load_spec


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("{preset: tiny, model: {hidden_size: 63}}", "base.model: hidden_size must be a multiple of num_attention"),
        ("{preset: tiny, modle: {}}", "base.modle: is not a field here (got {}); did you mean model?"),
        ("{kind: finetune}", "base.kind: must be 'pretrain' (got 'finetune')"),
        ("tiny", "base: Input should be a valid dictionary (got 'tiny')"),
        ("", "base: must be given"),
        (
            "{preset: tiny, training: {curriculum: [{until_step: 10, sequence_length: 64}]}}",
            "base.training.curriculum: must be absent: its steps are not those of a trial, which follow from budget",
        ),
        (
            "{preset: tiny, probe: {tasks: {a: {type: classification, data: {train: a.csv, validation: b.csv}}}}}",
            "base.probe: must be absent: what scores trials is objective (got a probe)",
        ),
    ],
)
def test_a_base_that_no_trial_can_start_from(base: str, expected: str) -> None:
    assert refused(base=base).startswith(expected)


INITIALIZED = "{preset: tiny, tokenizer: {type: pretrained, uri: /v}, initialization: {type: checkpoint, uri: /job}}"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("hidden_size", "[64, 128]"),
        ("num_attention_heads", "[2, 4]"),
        ("max_position_embeddings", "[128, 256]"),
        ("generator_size_ratio", "[0.25, 0.5]"),
        ("sharing", "[none, embeddings]"),
        ("layer_norm_eps", "[1e-12, 1e-6]"),
    ],
)
def test_weights_fit_one_kind_of_network(field: str, values: str) -> None:
    assert refused(base=INITIALIZED, space=f"{{model.{field}: {{type: choice, values: {values}}}}}") == (
        f"space.model.{field}: must be absent where the base has an initialization, whose weights fit networks of one "
        "size and make"
    )


def test_what_weights_do_not_depend_on_can_be_searched_with_them() -> None:
    rates = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
    numbers = [f"model.{name}: {{type: uniform, low: 0.01, high: 0.2}}" for name in rates]
    start = "model.position_embedding_init: {type: choice, values: [normal, sinusoidal]}"
    heads = "model.attention_init: {type: choice, values: [normal, neighbours]}"
    load_spec(text(base=INITIALIZED, space=f"{{{', '.join([*numbers, start, heads])}}}"))


@pytest.mark.parametrize(
    ("changed", "values", "expected"),
    [
        (
            "objective.name",
            "[mlm, electric]",
            "space.objective.name: must keep the generator and the detection head of the base, for which "
            "base.initialization has weights (got 'mlm')",
        ),
        (
            "objective.generator",
            "[uniform, unigram]",
            "space.objective.generator: must keep the generator of the base, for which base.initialization has weights "
            "(got 'uniform')",
        ),
    ],
)
def test_weights_need_the_networks_they_are_for(changed: str, values: str, expected: str) -> None:
    probe = "{type: probe, tasks: {a: {type: classification, data: {train: a.csv, validation: b.csv}}}}"
    space = f"{{{changed}: {{type: choice, values: {values}}}}}"
    assert refused(base=INITIALIZED, space=space, objective=probe) == expected


def test_weights_may_start_networks_that_have_more() -> None:
    """Adversarial training has a vector more, which begins from the seed."""
    load_spec(text(base=INITIALIZED, space="{objective.name: {type: choice, values: [electra, adversarial]}}"))


def test_the_seed_a_setting_was_chosen_by_is_none_of_the_final_round() -> None:
    assert refused(final="{seeds: [1, 42]}").startswith(
        "final.seeds: must not have base.training.seed (42): the score a setting was chosen by would count (got 1, 42)"
    )
