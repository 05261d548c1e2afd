"""Google's variables become our networks: the logits are those of the original's mathematics written in NumPy."""

from __future__ import annotations

import numpy as np
import plain_electra
import pytest
import torch
from tensorflow_variables import VOCAB_SIZE, other_variables, variables
from tiny import model_config

from electra_core.config import ObjectiveConfig
from electra_core.conversion.from_tensorflow import transformers_state, unknown_variables, weights_of
from electra_core.conversion.from_transformers import from_transformers
from electra_core.conversion.sizes import encoder_config
from electra_core.pretraining import ElectraForPretraining

SIZES = {
    "hidden_size": 16,
    "embedding_size": 12,
    "num_attention_heads": 1,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}


def states_of(values: dict[str, np.ndarray]) -> dict[str, dict[str, torch.Tensor]]:
    tensors = {name: torch.from_numpy(value) for name, value in values.items()}
    return {
        network: transformers_state(names, tensors)
        for network in ("discriminator", "generator")
        if (names := weights_of(values, network))
    }


@torch.no_grad()
def test_logits_of_both_networks_are_the_originals():
    values = variables()
    rng = torch.Generator().manual_seed(0)
    networks = ElectraForPretraining(model_config(**SIZES), VOCAB_SIZE, ObjectiveConfig(), rng).eval()
    converted = from_transformers(networks, **states_of(values))
    assert (converted.missing, converted.unexpected, converted.untouched, converted.notes) == ((), (), (), ())
    networks.load_state_dict(converted.state)
    ids = torch.randint(0, VOCAB_SIZE, (3, 11), generator=rng)
    types = torch.randint(0, 2, (3, 11), generator=rng)
    everywhere = torch.arange(11).expand(3, -1)
    expected = plain_electra.discriminator_logits(values, ids.numpy(), types.numpy())
    np.testing.assert_allclose(networks.discriminator_logits(ids, None, types), expected, atol=1e-5)
    expected = plain_electra.generator_logits(values, ids.numpy(), types.numpy())
    np.testing.assert_allclose(networks.generator_logits(ids, None, everywhere, types), expected, atol=1e-5)


def test_slots_and_the_step_are_passed_over_and_a_strange_head_is_named():
    values = variables() | other_variables() | {"task_specific/rte/kernel": np.zeros((2, 2))}
    unknown = [name for name in unknown_variables(values) if not name.startswith("types/")]
    assert unknown == ["task_specific/rte/kernel"]
    assert not any(name.variable.endswith(("adam_m", "adam_v")) for name in weights_of(values, "generator"))


@pytest.mark.parametrize(
    ("network", "kept"), [("discriminator", ("electra", "discriminator")), ("generator", ("generator", "electra/emb"))]
)
def test_either_network_may_be_alone(network: str, kept: tuple[str, ...]):
    alone = {name: value for name, value in variables().items() if name.startswith(kept)}
    assert set(states_of(alone)) == {network}
    assert states_of(alone)[network].keys() == states_of(variables())[network].keys()


def test_a_generator_without_an_encoder_of_its_own_has_the_discriminators():
    values = {name: value for name, value in variables().items() if not name.startswith("generator/")}
    states = states_of(values)
    name = "electra.encoder.layer.0.attention.self.query.weight"
    assert torch.equal(states["generator"][name], states["discriminator"][name])


def test_a_generator_may_have_tables_of_its_own():
    own = {
        name.replace("electra/", "generator/"): value + 1
        for name, value in variables().items()
        if name.startswith("electra/embeddings/")
    }
    states = states_of(variables() | own)
    name = "electra.embeddings.word_embeddings.weight"
    torch.testing.assert_close(states["generator"][name], states["discriminator"][name] + 1)


def test_sizes_are_read_off_the_tensors():
    config = encoder_config(states_of(variables())["generator"])
    assert (config.vocab_size, config.hidden_size, config.embedding_size) == (VOCAB_SIZE, 8, 12)
    assert (config.num_hidden_layers, config.intermediate_size, config.max_position_embeddings) == (2, 16, 16)
    assert config.num_attention_heads == 1


def test_a_kernel_that_is_no_matrix_is_refused():
    names = weights_of(variables(), "discriminator")
    tensors = {name: torch.zeros(3) for name in variables()}
    with pytest.raises(ValueError, match=r"kernel must be a matrix, got shape \(3,\)"):
        transformers_state(names, tensors)
