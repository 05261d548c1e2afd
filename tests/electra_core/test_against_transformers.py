"""Our networks, exported, are Transformers' networks: hidden states, logits, losses, and every Electra class loads."""

import random

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tiny import SPECIAL, VOCAB_SIZE, draws, masked_batch, networks, shake, token_batch
from transformers import (
    AutoModel,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
)

from electra_core.conversion.to_transformers import discriminator_state_dict, generator_state_dict, transformers_config
from electra_core.objectives.corruption import corrupt

TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
SHARING = [
    {"sharing": "none"},
    {"sharing": "none", "generator_num_hidden_layers": 1, "embedding_size": 32},
    {"sharing": "embeddings", "generator_num_hidden_layers": 3},
    {"sharing": "all", "generator_size_ratio": 1.0, "num_attention_heads": 4},
    {"sharing": "gdes", "generator_num_hidden_layers": 1, "generator_size_ratio": 1.0},
]
SIZES = [
    {},
    {"embedding_size": 32},
    {"embedding_size": 32, "generator_size_ratio": 1.0, "num_attention_heads": 4},
    {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 80, "num_hidden_layers": 3},
    {"position_embedding_init": "sinusoidal", "num_attention_heads": 1, "layer_norm_eps": 1e-6},
    {"position_embedding_init": "sinusoidal", "attention_init": "neighbours"},
]
STATES = {"discriminator": discriminator_state_dict, "generator": generator_state_dict}
CLASSES = {"discriminator": ElectraForPreTraining, "generator": ElectraForMaskedLM}


def ours(**changes):
    net = networks(**changes).eval()
    shake(net)
    return net


def saved(net, network, folder):
    config = transformers_config(getattr(net, network).config, SPECIAL, CLASSES[network].__name__)
    ElectraConfig.from_dict(config).save_pretrained(folder)
    save_file(STATES[network](net), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def loaded(net, network, folder, cls=None):
    cls = cls or CLASSES[network]
    model, report = cls.from_pretrained(saved(net, network, folder), output_loading_info=True)
    return model.eval(), report


@pytest.mark.parametrize("changes", [*SIZES, *SHARING])
@pytest.mark.parametrize("network", ["discriminator", "generator"])
@torch.no_grad()
def test_hidden_states_and_logits_are_the_same(network, changes, tmp_path):
    net = ours(**changes)
    theirs, report = loaded(net, network, tmp_path)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    batch = token_batch(padded=True)
    ids, mask, types = batch.input_ids, batch.attention_mask, (torch.arange(24) > 9).long().expand(4, -1)
    everywhere = torch.arange(24).expand(4, -1)
    if network == "discriminator":
        hidden, logits = net.discriminator_hidden(ids, mask, types), net.discriminator_logits(ids, mask, types)
    else:
        hidden, logits = net.generator_hidden(ids, mask, types), net.generator_logits(ids, mask, everywhere, types)
    expected = theirs(ids, mask.long(), types, output_hidden_states=True)
    torch.testing.assert_close(hidden[mask], expected.hidden_states[-1][mask], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits[mask], expected.logits[mask], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_both_losses_are_the_same(padded, tmp_path):
    net, batch = ours(), masked_batch(padded=padded)
    corruption = corrupt(net, batch, draws(batch), net.objective_config)
    sums = net(batch, draws(batch))
    for folder in ("generator", "discriminator"):
        (tmp_path / folder).mkdir()
    discriminator, _ = loaded(net, "discriminator", tmp_path / "discriminator")
    expected = discriminator(
        corruption.corrupted_ids, batch.attention_mask.long(), labels=corruption.is_replaced.long()
    )
    torch.testing.assert_close(sums.losses["discriminator_loss"].sum / batch.num_real, expected.loss)
    generator, _ = loaded(net, "generator", tmp_path / "generator")
    chosen = torch.zeros_like(batch.original_ids, dtype=torch.float32)
    chosen.scatter_(1, batch.masked_positions, batch.masked_weights)
    labels = batch.original_ids.masked_fill(chosen == 0, -100)
    expected = generator(batch.generator_input_ids, batch.attention_mask.long(), labels=labels)
    torch.testing.assert_close(sums.losses["generator_loss"].sum / batch.num_masked, expected.loss)


@pytest.mark.parametrize(
    ("network", "cls", "fresh"),
    [
        ("discriminator", ElectraForMaskedLM, ("generator_predictions.", "generator_lm_head.")),
        ("generator", ElectraForPreTraining, ("discriminator_predictions.",)),
        ("discriminator", ElectraForSequenceClassification, ("classifier.",)),
        ("discriminator", AutoModel, ()),
        ("generator", AutoModel, ()),
    ],
)
def test_backbone_loads_into_every_class(network, cls, fresh, tmp_path):
    _, report = loaded(ours(), network, tmp_path, cls)
    assert all(key.startswith(fresh) for key in report["missing_keys"]) if fresh else not report["missing_keys"]
    assert not any(key.startswith("electra.") for key in report["unexpected_keys"])


def drawn(seed):
    """Sizes of both networks and of a batch, drawn at random."""
    rng = random.Random(seed)
    heads = rng.randint(1, 4)
    hidden = heads * rng.choice([8, 12, 16, 24, 32])
    sharing = ("embeddings", "none", "all", "gdes")[seed % 4]
    depth = rng.randint(1, 4)
    changes = {
        "num_hidden_layers": depth,
        "generator_num_hidden_layers": depth if sharing == "all" else rng.randint(1, 4),
        "num_attention_heads": heads,
        "hidden_size": hidden,
        "embedding_size": rng.choice([hidden, rng.randint(8, 48)]),
        "intermediate_size": rng.randint(8, 100),
        "generator_size_ratio": 1.0 if sharing == "all" or hidden < 16 else rng.choice([0.5, 1.0]),
        "max_position_embeddings": 64,
        "initializer_range": rng.choice([0.05, 0.15]),
        "layer_norm_eps": rng.choice([1e-12, 1e-6]),
        "sharing": sharing,
    }
    shape = {"rows": rng.randint(1, 5), "length": rng.randint(5, 64), "padded": rng.random() < 0.5, "seed": seed}
    return changes, shape


def layers_of(net, network, ids, mask):
    """The last hidden states, and what each layer is given and gives."""
    encoder, states = getattr(net, network), []
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0])) for layer in encoder.layers]
    last = getattr(net, f"{network}_hidden")(ids, mask)
    for hook in hooks:
        hook.remove()
    return [*states, last]


@pytest.mark.parametrize("seed", range(10))
@torch.no_grad()
def test_random_networks_are_the_same_in_every_layer_and_loss(seed, tmp_path):
    changes, shape = drawn(seed)
    net, batch = ours(seed=seed, **changes), masked_batch(**shape)
    corruption = corrupt(net, batch, draws(batch), net.objective_config)
    mask = batch.attention_mask
    sums = net(batch, draws(batch)).detached()
    everywhere = torch.arange(shape["length"]).expand(shape["rows"], -1)
    is_masked = torch.zeros(everywhere.shape).scatter(1, batch.masked_positions, batch.masked_weights) > 0
    questions = {
        "generator": (batch.generator_input_ids, batch.original_ids.masked_fill(~is_masked, -100)),
        "discriminator": (corruption.corrupted_ids, corruption.is_replaced.long()),
    }
    losses = {network: sums[f"{network}_loss"] / sums[f"{network}_loss_positions"] for network in questions}
    for network, (ids, labels) in questions.items():
        (tmp_path / network).mkdir()
        theirs, _ = loaded(net, network, tmp_path / network)
        expected = theirs(ids, mask.long(), labels=labels, output_hidden_states=True)
        for mine, state in zip(layers_of(net, network, ids, mask), expected.hidden_states, strict=True):
            torch.testing.assert_close(mine[mask], state[mask], **TOLERANCE)
        arguments = (ids, mask, everywhere) if network == "generator" else (ids, mask)
        torch.testing.assert_close(
            getattr(net, f"{network}_logits")(*arguments)[mask], expected.logits[mask], **TOLERANCE
        )
        torch.testing.assert_close(losses[network], expected.loss, **TOLERANCE)


@pytest.mark.parametrize("changes", [{}, *SHARING])
def test_exports_share_no_storage_and_carry_no_padding(changes):
    net = ours(**changes)
    for state in (discriminator_state_dict(net), generator_state_dict(net)):
        assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
        assert state["electra.embeddings.word_embeddings.weight"].shape[0] == VOCAB_SIZE
        assert not any("position_ids" in key for key in state)


def test_padding_ids_are_impossible():
    net, batch = ours(), token_batch()
    positions = torch.tensor([[1, 2]] * 4)
    logits = net.masked_logits(net.generator_hidden(batch.input_ids, None), positions)
    assert logits.shape[-1] == 128
    assert (F.softmax(logits, dim=-1)[:, VOCAB_SIZE:] == 0).all()
