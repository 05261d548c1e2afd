"""Costs against the published figures, and against what torch counts."""

import subprocess
import sys

import pytest
import torch
from objective_table import ALL, STAGES, batch_for, build, masking_of
from tiny import SPECIAL, VOCAB_SIZE, masked_batch, model_config, networks
from torch.utils.flop_counter import FlopCounterMode
from transformers import ElectraConfig, ElectraModel

from electra_core.accounting import (
    parameter_counts,
    training_flops_per_token,
    training_memory_bytes,
)
from electra_core.config import MaskingConfig, ModelConfig
from electra_core.conversion.to_transformers import transformers_config
from electra_core.randomness import Draws

SMALL = ModelConfig()
BASE = ModelConfig(
    hidden_size=768, embedding_size=768, num_attention_heads=12, intermediate_size=3072, generator_size_ratio=1 / 3
)
BERT_VOCAB = 30522


def test_small_and_base_cost_what_the_method_says():
    small = training_flops_per_token(SMALL, MaskingConfig(), BERT_VOCAB, 128)
    assert small.total == pytest.approx(70.2e6, rel=1e-3)
    detection_head = 3 * 2 * (256 * 256 + 256)
    assert (small.discriminator + detection_head) / 3 == pytest.approx(20.64e6, rel=1e-3)
    assert (small.total - small.discriminator - detection_head) / 3 == pytest.approx(2.75e6, rel=1e-3)
    assert training_flops_per_token(BASE, MaskingConfig(), BERT_VOCAB, 512).total == pytest.approx(668e6, rel=1e-3)


@pytest.mark.parametrize("model", [SMALL, BASE])
def test_exported_size_is_transformers_electra_model(model):
    config = transformers_config(model.discriminator(BERT_VOCAB), SPECIAL, "ElectraModel")
    with torch.device("meta"):
        theirs = ElectraModel(ElectraConfig.from_dict(config))
    expected = sum(p.numel() for p in theirs.parameters())
    assert parameter_counts(model, BERT_VOCAB).discriminator_exported == expected


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_size": 32},
        {"generator_size_ratio": 1.0},
        {"generator_num_hidden_layers": 1},
        {"sharing": "none", "generator_num_hidden_layers": 3},
        {"sharing": "all", "generator_size_ratio": 1.0},
        {"sharing": "gdes", "embedding_size": 32},
    ],
)
def test_parameters_are_those_of_the_networks(changes):
    net = networks(**changes)
    counts = parameter_counts(model_config(**changes), VOCAB_SIZE)
    for part in ("embeddings", "generator", "discriminator", "generator_head", "discriminator_head"):
        assert getattr(counts, part) == sum(p.numel() for p in getattr(net, part).parameters()), part
    own = net.discriminator_embeddings
    assert counts.discriminator_embeddings == (0 if own is None else sum(p.numel() for p in own.parameters()))
    assert counts.total == sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_size": 32, "intermediate_size": 48},
        {"sharing": "gdes", "generator_size_ratio": 1.0, "generator_num_hidden_layers": 1},
        {"sharing": "all", "generator_size_ratio": 1.0},
    ],
)
def test_flops_are_those_torch_counts(changes):
    # Attention dropout takes the written-out path: torch does not count its fused attention on a CPU.
    net = networks(attention_probs_dropout_prob=0.1, **changes)
    batch = masked_batch(rows=4, length=24)
    with FlopCounterMode(display=False) as counter:
        sums = net(batch, Draws(0, 0, batch.rows))
        sums.total(batch.num_masked, batch.num_real).backward()
    expected = training_flops_per_token(model_config(**changes), MaskingConfig(), VOCAB_SIZE, 24).total * 4 * 24
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_every_objective_costs_what_torch_counts(name, stage):
    net, batch = build(name, stage, attention_probs_dropout_prob=0.1), batch_for(name)
    with FlopCounterMode(display=False) as counter:
        net(batch, Draws(0, 0, batch.rows)).total(batch.num_masked, batch.num_real).backward()
    flops = training_flops_per_token(net.model_config, masking_of(name), VOCAB_SIZE, 24, ALL[name], stage)
    assert counter.get_total_flops() == pytest.approx(flops.total * 4 * 24, rel=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_every_objective_has_the_parameters_of_its_networks(name):
    net = build(name)
    counts = parameter_counts(net.model_config, VOCAB_SIZE, ALL[name])
    assert counts.total == sum(p.numel() for p in net.parameters())
    assert counts.generator == sum(
        p.numel()
        for part in ("generator", "cloze_towers")
        if hasattr(net, part)
        for p in getattr(net, part).parameters()
    )


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_activations_are_about_what_autograd_keeps(dropout):
    changes = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": 0.1, "num_hidden_layers": 4}
    net = networks(**changes)
    batch, kept = masked_batch(rows=8, length=32), {}
    weights = {p.untyped_storage().data_ptr() for p in net.parameters()}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        net(batch, Draws(0, 0, batch.rows))
    measured = sum(size for pointer, (size, _) in kept.items() if pointer not in weights)
    memory = training_memory_bytes(model_config(**changes), MaskingConfig(), VOCAB_SIZE, 32, rows=8)
    assert memory.activations == pytest.approx(measured, rel=0.3)
    assert memory.weights * 4 == memory.total - memory.activations


def test_needs_no_torch():
    code = "import sys, electra_core.accounting, electra_core.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
