"""What the networks share: whose loss reaches which parameter, and what stays as it was."""

import copy

import pytest
import torch
from tiny import VOCAB_SIZE, draws, masked_batch, model_config, networks, shake

from electra_core.config import OptimizerConfig
from electra_core.optimizer import ElectraAdam

MODES = {
    "none": {"sharing": "none"},
    "embeddings": {},
    "all": {"sharing": "all", "generator_size_ratio": 1.0},
    "gdes": {"sharing": "gdes", "generator_num_hidden_layers": 1, "generator_size_ratio": 1.0},
}
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def reached(net, loss_name):
    """Names of the parameters one loss gives a gradient that is not 0."""
    net.zero_grad(set_to_none=True)
    batch = masked_batch(rows=8)
    net(batch, draws(batch)).losses[loss_name].sum.backward()
    return {name for name, p in net.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}


def reached_by_each(net):
    return reached(net, "generator_loss"), reached(net, "discriminator_loss")


@pytest.mark.parametrize("mode", MODES)
def test_every_parameter_is_trained(mode):
    net = networks(**DROPOUT, **MODES[mode])
    generators, discriminators = reached_by_each(net)
    assert generators | discriminators == {name for name, _ in net.named_parameters()}


@pytest.mark.parametrize("mode", ["none", "gdes"])
def test_no_parameter_learns_from_both_losses(mode):
    net = networks(**MODES[mode])
    shake(net)
    generators, discriminators = reached_by_each(net)
    assert not generators & discriminators
    assert {name for name in generators if name.startswith("embeddings.")} == {
        f"embeddings.{name}" for name, _ in net.embeddings.named_parameters()
    }
    assert {name for name in discriminators if "embeddings." in name} == {
        f"discriminator_embeddings.{name}" for name, _ in net.discriminator_embeddings.named_parameters()
    }


def test_shared_embeddings_learn_from_both_losses():
    generators, discriminators = reached_by_each(networks())
    assert generators & discriminators == {f"embeddings.{name}" for name, _ in networks().embeddings.named_parameters()}


def test_one_encoder_learns_from_both_losses():
    net = networks(**MODES["all"])
    generators, discriminators = reached_by_each(net)
    heads = {name for name, _ in net.named_parameters() if "_head." in name}
    assert generators & discriminators == {name for name, _ in net.named_parameters()} - heads
    assert not any(name.startswith("discriminator.") for name, _ in net.named_parameters())


def test_one_encoder_drops_other_elements_in_each_network():
    net, batch = networks(**DROPOUT, **MODES["all"]), masked_batch()
    ids, numbers = batch.original_ids, draws(batch)
    in_training = [f(ids, None, None, numbers) for f in (net.generator_hidden, net.discriminator_hidden)]
    assert not torch.allclose(*in_training)
    net.eval()
    assert torch.equal(net.generator_hidden(ids, None), net.discriminator_hidden(ids, None))


@pytest.mark.parametrize("mode", MODES)
def test_what_is_shared_stays_shared(mode):
    """Through a copy, a checkpoint and a step of the optimizer."""
    net = copy.deepcopy(networks(**MODES[mode]))
    other = networks(seed=1, **MODES[mode])
    other.load_state_dict(net.state_dict())
    config, batch = OptimizerConfig(), masked_batch(rows=8)
    for each in (net, other):
        sums = each(batch, draws(batch))
        sums.total(batch.num_masked, batch.num_real).backward()
        ElectraAdam(each.parameters(), lr=config.learning_rate).step()
        pairs = zip(each.generator.parameters(), each.discriminator.parameters(), strict=False)
        assert all((mine is theirs) == (mode == "all") for mine, theirs in pairs)
    for (name, mine), theirs in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs), name


def test_the_disentangled_discriminator_starts_with_the_generators_embeddings():
    """So with the very losses that plain sharing starts with."""
    net, batch = networks(**MODES["gdes"]), masked_batch()
    plain = networks(**MODES["gdes"] | {"sharing": "embeddings"})
    for name in ("word", "position", "token_type"):
        assert torch.equal(getattr(net.discriminator_tables, name), getattr(net.embeddings, name))
    for name, value in net(batch, draws(batch)).detached().items():
        torch.testing.assert_close(value, plain(batch, draws(batch)).detached()[name])


def test_the_disentangled_discriminator_follows_the_generators_embeddings():
    net, batch = networks(**MODES["gdes"]), masked_batch()
    before = net.discriminator_logits(batch.original_ids, None)
    with torch.no_grad():
        net.embeddings.word.add_(torch.randn_like(net.embeddings.word))
    assert not torch.allclose(net.discriminator_logits(batch.original_ids, None), before)


def test_what_is_shared_changes_no_other_initial_weight():
    plain = networks().state_dict()
    for mode in ("none", "gdes"):
        state = networks(sharing=mode).state_dict()
        assert all(torch.equal(state[name], value) for name, value in plain.items())
        assert {name.partition(".")[0] for name in state.keys() - plain.keys()} == {"discriminator_embeddings"}


def test_the_generator_may_be_less_deep():
    net = networks(generator_num_hidden_layers=1)
    assert (len(net.generator.layers), len(net.discriminator.layers)) == (1, 2)
    assert model_config().generator(VOCAB_SIZE).num_hidden_layers == 2


@pytest.mark.parametrize(
    "changes",
    [{"generator_size_ratio": 0.5}, {"generator_size_ratio": 1.0, "generator_num_hidden_layers": 1}],
)
def test_one_encoder_needs_one_size(changes):
    with pytest.raises(ValueError, match="sharing: all makes one encoder of both networks, so generator_size_ratio"):
        model_config(sharing="all", **changes)
