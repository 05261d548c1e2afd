"""Rates by depth and by network, from names alone."""

import pytest
import torch
from tiny import networks

from electra_core.config import OptimizerConfig
from electra_core.optimizer import make_optimizer, parameter_groups, set_learning_rate
from electra_core.optimizer.groups import layers_by_network, learning_rate_scale, levels_below_head

LAYERS = {"generator": 2, "discriminator": 12, "cloze_towers.right_to_left": 6}


def test_layers_are_counted_by_network():
    names = [name for name, _ in networks(num_hidden_layers=3).named_parameters()]
    assert layers_by_network(names) == {"generator": 3, "discriminator": 3}


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("discriminator_head.prediction.weight", 0),
        ("generator_head.dense.bias", 0),
        ("discriminator.layers.11.output.weight", 1),
        ("discriminator.layers.10.output.weight", 2),
        ("discriminator.layers.0.attention_layer_norm.bias", 12),
        ("generator.layers.1.output.bias", 1),
        ("generator.layers.0.output.bias", 2),
        ("generator.embeddings_projection.weight", 3),
        ("discriminator.embeddings_projection.weight", 13),
        ("cloze_towers.right_to_left.layers.4.output.bias", 2),
        ("cloze_towers.right_to_left.embeddings_projection.weight", 7),
        ("language_head.dense.weight", 0),
        ("generator_baseline", 0),
        ("discriminator_embeddings.word_delta", 13),
        ("embeddings.word", 13),
        ("embeddings.layer_norm.weight", 13),
    ],
)
def test_each_level_is_one_more_power(name, levels):
    assert levels_below_head(name, LAYERS) == levels
    config = OptimizerConfig(layerwise_decay=0.5)
    ratio = learning_rate_scale(name, 0, LAYERS, config)
    assert ratio == pytest.approx(0.5**levels)


def test_the_discriminators_ratio_leaves_generator_and_embeddings_alone():
    config = OptimizerConfig(discriminator_learning_rate_ratio=3)
    scales = {
        name: learning_rate_scale(name, 0, LAYERS, config)
        for name in ("discriminator.layers.0.output.weight", "language_head.dense.bias", "generator_head.bias",
                     "generator.layers.0.output.weight", "embeddings.word")
    }  # fmt: skip
    assert list(scales.values()) == [3, 3, 1, 1, 1]


def test_word_embeddings_have_a_rate_of_their_own():
    config = OptimizerConfig(learning_rate=1e-3, embedding_learning_rate=4e-3, layerwise_decay=0.5)
    names = ("embeddings.word", "discriminator_embeddings.word_delta", "embeddings.position", "generator_head.bias")
    scales = [learning_rate_scale(name, 0, LAYERS, config) for name in names]
    assert scales == [4 * 0.5**13, 4 * 0.5**13, 0.5**13, 1]


def test_all_scales_multiply():
    config = OptimizerConfig(
        name="muon",
        learning_rate=1e-3,
        muon_learning_rate=2e-3,
        layerwise_decay=0.5,
        discriminator_learning_rate_ratio=3,
    )
    assert learning_rate_scale("discriminator.layers.10.output.weight", 1, LAYERS, config) == 2 * 0.25 * 3


def test_groups_carry_the_scales_into_the_step():
    """A bottom layer moves half as far as a top one for the same gradient."""
    config = OptimizerConfig(name="adamw", layerwise_decay=0.5, weight_decay=0.0)
    net = networks()
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer = make_optimizer(net, config)
    set_learning_rate(optimizer, 1e-2)
    optimizer.step()
    moved = {name: (parameter - before[name]).abs().max().item() for name, parameter in net.named_parameters()}
    assert moved["generator_head.bias"] == pytest.approx(1e-2, rel=1e-3)
    assert moved["generator.layers.1.output.bias"] == pytest.approx(5e-3, rel=1e-3)
    assert moved["generator.layers.0.output.bias"] == pytest.approx(2.5e-3, rel=1e-3)
    assert moved["embeddings.token_type"] == pytest.approx(1.25e-3, rel=1e-3)


def test_parameters_that_take_no_gradient_are_left_out():
    net = networks()
    net.embeddings.requires_grad_(False)
    groups = parameter_groups(net, OptimizerConfig())
    held = {id(parameter) for group in groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in net.parameters() if parameter.requires_grad}
