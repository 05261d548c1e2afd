"""Specs: presets, merging, overrides, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_core.config import ModelConfig, ObjectiveName, OptimizerConfig
from pipelines.specs.parsing import MAX_SPEC_BYTES, dump_spec, load_spec, resolve_spec
from pipelines.specs.plan import plan_job
from pipelines.specs.presets import PRESETS
from pipelines.specs.spec_errors import SpecError

EXAMPLES = Path(__file__).parents[2] / "examples"


SENSELESS_OBJECTIVES = (
    ("objective: {name: rtd}", "objective.name: Input should be 'electra'"),
    ("objective: {name: two_stage}\nmodel: {generator_size_ratio: 0.25}", "generator_size_ratio must be 1 where"),
    ("objective: {name: two_stage}\nmodel: {sharing: embeddings}", "model.sharing must be 'none' where objective.name"),
    ("objective: {name: mlm}\nmodel: {sharing: gdes}", "as there is no second network, got 'gdes'"),
    ("objective: {name: two_stage, generator: uniform}", "generator must be 'transformer' where name is 'two_stage'"),
    ("objective: {name: adversarial, generator: unigram}", "trained against the discriminator, got 'unigram'"),
    ("objective: {name: electric, generator: uniform}", "whose noise is a two-tower cloze network, got 'uniform'"),
    ("objective: {name: mlm, generator: uniform}", "which has no generator, got 'uniform'"),
    (
        "objective: {name: mlm, temperature: 2}",
        "temperature must be 1 where name is 'mlm', which samples nothing, got 2",
    ),
    ("objective: {generator: uniform, temperature: 2}", "since a uniform generator has no logits to divide, got 2"),
    ("objective: {name: electric, temperature: 2}", "the probabilities its noise was drawn with, got 2"),
    ("objective: {name: mlm, disallow_correct: true}", "disallow_correct must be false where name is 'mlm'"),
    (
        "objective: {name: adversarial, disallow_correct: true}",
        "rewarded where its sample is the original, too, got true",
    ),
    ("objective: {name: mlm, discriminator_weight: 20}", "discriminator_weight must be left at 50 where name is 'mlm'"),
    ("objective: {name: two_stage, discriminator_weight: 20}", "which minimises one loss at a time, got 20"),
    ("objective: {two_stage_switch_fraction: 0.2}", "which has one stage, got 0.2"),
    ("preset: tiny\nobjective: {name: two_stage, two_stage_switch_fraction: 0.00001}", "must leave each stage a step"),
    ("masking: {mask_token_fraction: 0.9, random_token_fraction: 0.2}", "must add up to at most 1, got 0.9 and 0.2"),
)


def problem(document: str, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(document, overrides)
    return str(caught.value)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_resolves_to_itself(name):
    assert resolve_spec({"kind": "pretrain", "preset": name}) == PRESETS[name]()


# Those in manifests of Kubernetes are looked at with these, in tests/deploy.
SPEC_FILES = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.parent.name != "kubernetes")


@pytest.mark.parametrize("path", SPEC_FILES, ids=lambda path: path.name)
def test_every_example_is_a_valid_spec(path):
    load_spec(path.read_bytes())


def test_paper_numbers_of_the_presets():
    small, base, large = (PRESETS[name]() for name in ("small", "base", "large"))
    assert (small.model.hidden_size, small.training.global_batch_size, small.training.num_train_steps) == (
        256, 128, 1_000_000)  # fmt: skip
    assert (base.optimizer.learning_rate, base.training.sequence_length, base.training.num_train_steps) == (
        2e-4, 512, 766_000)  # fmt: skip
    assert (large.masking.mask_fraction, large.model.generator_hidden_size, large.model.num_hidden_layers) == (
        0.25, 256, 24)  # fmt: skip


def test_a_spec_lies_over_its_preset():
    spec = load_spec("kind: pretrain\npreset: tiny\nmodel: {num_hidden_layers: 3}")
    assert spec.model.num_hidden_layers == 3
    assert spec.model.hidden_size == PRESETS["tiny"]().model.hidden_size


def test_overrides_win_and_are_checked_as_a_whole():
    spec = load_spec(
        "kind: pretrain\npreset: tiny", ["objective.discriminator_weight=20", "optimizer.learning_rate=5e-4"]
    )
    assert (spec.objective.discriminator_weight, spec.optimizer.learning_rate) == (20, 5e-4)
    text = problem("kind: pretrain\npreset: tiny", "training.sequence_length=256")
    assert "training.sequence_length must be at most model.max_position_embeddings, got 256 and" in text


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", get_args(ObjectiveName))
def test_every_objective_is_one_line_of_a_spec(name, preset):
    spec = load_spec(f"kind: pretrain\npreset: {preset}\nobjective: {{name: {name}}}")
    assert spec.objective.name == name
    assert load_spec(dump_spec(spec)) == spec
    assert plan_job(spec).total_flops > 0


def test_bert_masks_as_bert_does_unless_told_otherwise():
    masking = load_spec("kind: pretrain\npreset: large\nobjective: {name: mlm}").masking
    shares = (masking.mask_token_fraction, masking.random_token_fraction, masking.mask_fraction)
    assert shares == (0.8, 0.1, 0.25)
    own = load_spec("kind: pretrain\nobjective: {name: mlm}\nmasking: {random_token_fraction: 0}").masking
    assert (own.mask_token_fraction, own.random_token_fraction) == (0.8, 0.0)
    assert PRESETS["large"]().masking.mask_token_fraction == 0.85


def test_a_run_without_a_generator_is_priced_without_one():
    joint, alone, uniform = (
        plan_job(load_spec(f"kind: pretrain\npreset: small\nobjective: {objective}"))
        for objective in ("{}", "{name: mlm}", "{generator: uniform}")
    )
    assert alone.generator_parameters == uniform.generator_parameters == 0 < joint.generator_parameters
    assert uniform.trainable_parameters < joint.trainable_parameters
    assert uniform.total_flops < alone.total_flops
    assert uniform.memory_bytes_per_worker < joint.memory_bytes_per_worker


def test_another_tokenizer_type_replaces_the_presets_whole():
    spec = load_spec("kind: pretrain\npreset: tiny\ntokenizer: {type: pretrained, uri: /vocab.txt}")
    assert spec.tokenizer.type == "pretrained"


def test_another_optimizer_leaves_the_presets_own_rate_behind():
    optimizer = load_spec("kind: pretrain\npreset: tiny\noptimizer: {name: adamw}").optimizer
    assert (optimizer.muon_learning_rate, optimizer.learning_rate, optimizer.warmup_steps) == (None, 6e-4, 500)
    assert load_spec("kind: pretrain\npreset: tiny\noptimizer: {beta1: 0.8}").optimizer.muon_learning_rate == 1e-3


def test_a_resolved_spec_survives_json():
    spec = PRESETS["base"]()
    assert load_spec(dump_spec(spec)) == spec
    weights = ["tokenizer={type: pretrained, uri: /v}", "initialization={type: transformers, generator_uri: s3://a/b}"]
    started = load_spec("kind: pretrain\npreset: base", weights)
    assert load_spec(dump_spec(started)) == started


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("kind: pretrain\nfoo: 1", "foo: is not a field here (got 1)"),
        ("kind: other", "kind: must be one of pretrain, finetune, evaluate, search (got 'other')"),
        ("preset: huge\nkind: pretrain", "preset: must be one of base, large, small, tiny (got 'huge')"),
        ("[1, 2]", "must be a mapping"),
        ("kind: [", "must be YAML or JSON"),
        ("a: &a [1]\nb: *a", "aliases (*name) are not allowed"),
        ("kind: pretrain\ncorpus: {sources: [{type: jsonl}]}", "corpus.sources.0.uris: must be given"),
        ("kind: pretrain\ncorpus: {sources: [{type: text, uris: 'ftp://x'}]}", "scheme of file, s3, gs, https, http"),
        ("kind: pretrain\nmodel: {num_attention_heads: 3}", "multiple of num_attention_heads, got 256 and 3"),
        ("kind: pretrain\ntraining: {num_train_steps: .inf}", "finite number (got inf)"),
        ("kind: pretrain\ntraining: {global_batch_size: 9}\ncompute: {num_workers: 2}", "got 9 and 2"),
        ("kind: pretrain\noptimizer: {warmup_steps: 2000000}", "less than training.num_train_steps"),
        ("kind: pretrain\nrecord: {alias: latest}", "must not be 'latest'"),
        ("kind: pretrain\nname: ../x", "name: String should match pattern"),
        ("kind: pretrain\ninitialization: {type: tensorflow, uri: /a}", "tokenizer.type must be 'pretrained' where"),
        ("kind: pretrain\ninitialization: {type: tensorflow}", "initialization.uri: must be given"),
        ("kind: pretrain\ninitialization: {type: transformers}", "discriminator_uri or generator_uri must be given"),
        ("kind: pretrain\ninitialization: {type: checkpoint, uri: '/a/*'}", "must name one place and be no pattern"),
        ("kind: pretrain\ninitialization: {type: checkpoint, uri: 'ftp://a'}", "must have a scheme of file, s3"),
        *((f"kind: pretrain\n{document}", expected) for document, expected in SENSELESS_OBJECTIVES),
    ],
)
def test_a_bad_spec_is_refused_with_field_rule_and_value(document, expected):
    assert expected in problem(document)


def test_a_huge_document_is_refused_before_it_is_parsed():
    assert f"at most {MAX_SPEC_BYTES} bytes" in problem("x" * (MAX_SPEC_BYTES + 1))


@given(ratio=st.floats(0.01, 1), width=st.sampled_from([64, 128, 256, 768]))
def test_a_generator_that_is_accepted_can_be_built(ratio, width):
    """Every accepted ratio gives a generator whose heads divide its width."""
    try:
        model = ModelConfig(hidden_size=width, num_attention_heads=width // 64, generator_size_ratio=ratio)
    except ValueError:
        return
    assert model.generator(1000).hidden_size % model.generator(1000).num_attention_heads == 0


@given(st.builds(OptimizerConfig, learning_rate=st.floats(1e-6, 1), weight_decay=st.floats(0, 0.5)))
def test_configs_round_trip_through_json(config):
    assert OptimizerConfig.model_validate(json.loads(config.model_dump_json())) == config
