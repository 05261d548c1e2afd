"""Transformers' weights become ours: losses are theirs, round trips are exact, and what does not fit is said."""

from __future__ import annotations

import pytest
import torch
from objective_table import ALL, build
from tiny import SPECIAL, VOCAB_SIZE, draws, masked_batch, networks, shake
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining, ElectraModel

from electra_core.conversion.collector import clean_names
from electra_core.conversion.from_transformers import from_transformers
from electra_core.conversion.to_transformers import (
    discriminator_state_dict,
    exported_state_dicts,
    generator_state_dict,
    transformers_config,
)
from electra_core.objectives.corruption import corrupt

DISCRIMINATOR_WORDS = "electra.embeddings.word_embeddings.weight"
POSITIONS = "electra.embeddings.position_embeddings.weight"


def shaken(seed: int = 1, **changes):
    net = networks(**changes)
    shake(net, seed)
    return net


def theirs(cls, network: str, seed: int):
    """One of Transformers' own models with random weights, biases and LayerNorms included."""
    config = transformers_config(getattr(networks(), network).config, SPECIAL, cls.__name__)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = cls(ElectraConfig.from_dict(config)).eval()
    shake(model, seed)
    return model


def with_shared_embeddings(discriminator, generator) -> None:
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())


@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_the_first_losses_are_those_of_transformers(padded: bool):
    discriminator = theirs(ElectraForPreTraining, "discriminator", 3)
    generator = theirs(ElectraForMaskedLM, "generator", 4)
    with_shared_embeddings(discriminator, generator)
    net = networks()
    converted = from_transformers(net, discriminator.state_dict(), generator.state_dict())
    assert (converted.missing, converted.unexpected, converted.untouched, converted.notes) == ((), (), (), ())
    net.load_state_dict(converted.state)
    batch = masked_batch(padded=padded)
    corruption = corrupt(net, batch, draws(batch), net.objective_config)
    sums = net(batch, draws(batch)).detached()
    mask = batch.attention_mask.long()
    expected = discriminator(corruption.corrupted_ids, mask, labels=corruption.is_replaced.long()).loss
    torch.testing.assert_close(sums["discriminator_loss"] / batch.num_real, expected, atol=1e-5, rtol=1e-5)
    chosen = torch.zeros_like(batch.original_ids, dtype=torch.float32)
    chosen.scatter_(1, batch.masked_positions, batch.masked_weights)
    labels = batch.original_ids.masked_fill(chosen == 0, -100)
    expected = generator(batch.generator_input_ids, mask, labels=labels).loss
    torch.testing.assert_close(sums["generator_loss"] / batch.num_masked, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 32}, {"generator_size_ratio": 1.0}])
def test_there_and_back_is_exact(changes):
    net, other = shaken(1, **changes), shaken(2, **changes)
    converted = from_transformers(other, discriminator_state_dict(net), generator_state_dict(net))
    other.load_state_dict(converted.state)
    assert discriminator_state_dict(net).keys() == discriminator_state_dict(other).keys()
    for export in (discriminator_state_dict, generator_state_dict):
        assert all(torch.equal(export(net)[name], export(other)[name]) for name in export(net))
    assert not other.embeddings.word[VOCAB_SIZE:].any()


@pytest.mark.parametrize("name", ALL)
def test_every_objectives_exports_come_back_exactly(name):
    net, other = build(name), build(name, is_shaken=False)
    exports = {network: state for network, (state, _) in exported_state_dicts(net).items()}
    generator = exports.pop("generator", None)
    converted = from_transformers(other, exports.popitem()[1], generator)
    assert not converted.unexpected
    assert all(key.startswith(("cloze_", "generator_baseline")) for key in converted.untouched)
    other.load_state_dict(converted.state, strict=False)
    for network, (state, _) in exported_state_dicts(other).items():
        assert all(torch.equal(state[key], value) for key, value in exported_state_dicts(net)[network][0].items())


@pytest.mark.parametrize("sharing", ["none", "gdes"])
@torch.no_grad()
def test_networks_with_embeddings_of_their_own_get_their_own(sharing: str):
    """From two independent networks: whatever the target shares, each network computes what its source did."""
    discriminator, generator = discriminator_state_dict(shaken(1)), generator_state_dict(shaken(2))
    net = networks(sharing=sharing)
    converted = from_transformers(net, discriminator, generator)
    assert (converted.missing, converted.unexpected, converted.untouched, converted.notes) == ((), (), (), ())
    net.load_state_dict(converted.state)
    for expected, got in ((discriminator, discriminator_state_dict(net)), (generator, generator_state_dict(net))):
        assert expected.keys() == got.keys()
        assert all(torch.allclose(expected[name], got[name], atol=1e-6) for name in expected)


def test_a_discriminator_alone_gives_disentangled_networks_both_tables():
    state = discriminator_state_dict(shaken())
    net = networks(sharing="gdes")
    net.load_state_dict(from_transformers(net, state).state, strict=False)
    assert torch.equal(generator_state_dict(net)[DISCRIMINATOR_WORDS], state[DISCRIMINATOR_WORDS])
    assert not net.state_dict()["discriminator_embeddings.word_delta"].any()


def test_one_encoder_is_taken_from_the_discriminator_and_that_is_said():
    one = {"sharing": "all", "generator_size_ratio": 1.0}
    discriminator = discriminator_state_dict(shaken(1, generator_size_ratio=1.0))
    generator = generator_state_dict(shaken(2, **one))
    net = networks(**one)
    converted = from_transformers(net, discriminator, generator)
    assert "the networks' encoders differ" in converted.notes[-1]
    net.load_state_dict(converted.state)
    assert all(torch.equal(tensor, discriminator_state_dict(net)[name]) for name, tensor in discriminator.items())
    alone = from_transformers(net, discriminator)
    assert all(name.startswith("generator_head.") for name in alone.untouched)


def test_a_missing_network_keeps_its_start_and_is_named():
    converted = from_transformers(networks(), discriminator_state_dict(shaken()))
    assert converted.untouched
    assert all(name.startswith(("generator.", "generator_head.")) for name in converted.untouched)


def test_a_bare_backbone_leaves_the_head():
    backbone = theirs(ElectraModel, "discriminator", 5)
    converted = from_transformers(networks(), discriminator=backbone.state_dict())
    assert [name for name in converted.untouched if name.startswith("discriminator")] == [
        f"discriminator_head.{module}.{kind}" for module in ("dense", "prediction") for kind in ("bias", "weight")
    ]
    assert "discriminator: discriminator_predictions.dense.weight" in converted.missing
    assert not converted.unexpected


def test_what_has_no_place_is_named():
    state = discriminator_state_dict(shaken()) | {"classifier.dense.weight": torch.zeros(2, 2)}
    assert from_transformers(networks(), state).unexpected == ("discriminator: classifier.dense.weight",)


def test_old_names_are_understood():
    state = discriminator_state_dict(shaken())
    old = {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): state[name] for name in state}
    old["electra.embeddings.position_ids"] = torch.arange(32)[None]
    assert clean_names(old).keys() == state.keys()


def test_embeddings_that_differ_are_the_discriminators_and_that_is_said():
    discriminator, generator = discriminator_state_dict(shaken(1)), generator_state_dict(shaken(2))
    net = networks()
    converted = from_transformers(net, discriminator, generator)
    assert torch.equal(converted.state["embeddings.word"][:VOCAB_SIZE], discriminator[DISCRIMINATOR_WORDS])
    assert "the discriminator's are taken" in converted.notes[0]


def test_a_longer_position_table_is_cut_and_a_shorter_one_refused():
    state = discriminator_state_dict(shaken())
    converted = from_transformers(networks(max_position_embeddings=16), state)
    assert torch.equal(converted.state["embeddings.position"], state[POSITIONS][:16])
    assert "cut from 32 to 16 rows" in converted.notes[0]
    with pytest.raises(ValueError, match=r"position_embeddings.* must have shape \(64, 16\), got \(32, 16\)"):
        from_transformers(networks(max_position_embeddings=64), state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 48}, r"must have shape \(\d+, \d+\), got \(\d+, \d+\)"),
        ({"intermediate_size": 80}, r"must have shape \(80, 32\), got \(64, 32\)"),
        ({"num_hidden_layers": 3}, "the discriminator must have 3 layers, got 2"),
        ({"num_hidden_layers": 1}, "the discriminator must have 1 layers, got 2"),
    ],
)
def test_other_sizes_are_refused_with_tensor_expected_and_got(changes, message):
    with pytest.raises(ValueError, match=message):
        from_transformers(networks(**changes), discriminator_state_dict(shaken()))


def test_another_vocabulary_is_refused():
    state = discriminator_state_dict(shaken())
    state[DISCRIMINATOR_WORDS] = state[DISCRIMINATOR_WORDS][:-1]
    with pytest.raises(ValueError, match=r"word_embeddings.weight of the discriminator must have shape \(100, 16\)"):
        from_transformers(networks(), state)


def test_an_output_matrix_that_repeats_the_embeddings_is_one_with_them():
    state = generator_state_dict(shaken())
    again = state | {"generator_lm_head.weight": state[DISCRIMINATOR_WORDS].clone()}
    assert clean_names(again).keys() == state.keys()


def test_an_untied_generator_is_refused():
    state = generator_state_dict(shaken())
    state["generator_lm_head.weight"] = torch.zeros(VOCAB_SIZE, 16)
    with pytest.raises(ValueError, match=r"generator_lm_head.weight must equal electra.embeddings"):
        from_transformers(networks(), generator=state)


def test_a_network_that_is_not_trained_cannot_be_given():
    net = networks()
    del net.generator
    with pytest.raises(ValueError, match="must have a generator to take its weights, got none"):
        from_transformers(net, generator=generator_state_dict(shaken()))


def test_nan_is_refused():
    state = discriminator_state_dict(shaken())
    state[POSITIONS][0, 0] = torch.nan
    with pytest.raises(ValueError, match="must be finite"):
        from_transformers(networks(), state)
