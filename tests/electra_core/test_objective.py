"""The objective: what carries gradient, what counts as replaced, and that the sums do not depend on who adds them."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny import SPECIAL, VOCAB_SIZE, draws, masked_batch, networks, shake

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.objectives.corruption import corrupt

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def gradients(net, batches):
    """Gradients of the global loss, summed over parts of the batch."""
    num_masked, num_real = sum(b.num_masked for b in batches), sum(b.num_real for b in batches)
    net.zero_grad()
    for batch in batches:
        net(batch, draws(batch, step=3)).total(num_masked, num_real).backward()
    return {name: p.grad.clone() for name, p in net.named_parameters()}


def certain(net, token_id):
    """Let the generator put all its weight on one token."""
    with torch.no_grad():
        net.generator_head.bias[token_id] = 1e4
    return net


def test_lucky_samples_are_labelled_original():
    batch = masked_batch()
    ids = torch.where(batch.original_ids > 4, 50, batch.original_ids)
    lucky = MaskedBatch(ids, ids, batch.attention_mask, None, batch.masked_positions, batch.masked_weights, batch.rows)
    corruption = corrupt(certain(networks(), 50), lucky, draws(lucky), ObjectiveConfig())
    assert not corruption.is_replaced.any()
    assert corruption.generator_correct == lucky.num_masked
    assert torch.equal(corruption.corrupted_ids, ids)


def test_discriminator_sees_the_unmasked_input_with_samples():
    batch = masked_batch(padded=True)
    corruption = corrupt(certain(networks(), 50), batch, draws(batch), ObjectiveConfig())
    chosen = torch.zeros_like(batch.original_ids, dtype=torch.float32)
    chosen.scatter_(1, batch.masked_positions, batch.masked_weights)
    assert torch.equal(corruption.corrupted_ids, batch.original_ids.masked_fill(chosen > 0, 50))
    assert torch.equal(corruption.is_replaced, (chosen > 0) & (batch.original_ids != 50))
    assert SPECIAL.mask_id not in corruption.corrupted_ids


def test_disallow_correct_replaces_every_masked_token():
    batch = masked_batch(mask_fraction=0.4)
    corruption = corrupt(networks(), batch, draws(batch), ObjectiveConfig(disallow_correct=True))
    assert corruption.is_replaced.sum() == batch.num_masked


def test_temperature_changes_samples_but_not_the_generators_loss():
    batch, net = masked_batch(rows=32, mask_fraction=0.4), networks()
    shake(net)
    hot, cold = (corrupt(net, batch, draws(batch), ObjectiveConfig(temperature=t)) for t in (5.0, 0.01))
    assert torch.equal(hot.generator_loss, cold.generator_loss)
    assert not torch.equal(hot.corrupted_ids, cold.corrupted_ids)


def test_no_gradient_reaches_the_generator_through_the_samples():
    net, batch = networks(), masked_batch()
    net(batch, draws(batch)).losses["discriminator_loss"].sum.backward()
    for part in (net.generator, net.generator_head):
        assert all(p.grad is None for p in part.parameters())
    assert net.embeddings.word.grad.abs().sum() > 0


def test_every_parameter_is_trained():
    net = networks(**DROPOUT)
    for name, gradient in gradients(net, [masked_batch(rows=8)]).items():
        assert gradient.abs().sum() > 0, name


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dropout", [{}, DROPOUT])
def test_gradients_do_not_depend_on_how_the_batch_is_split(padded, dropout):
    net, batch = networks(**dropout), masked_batch(rows=8, padded=padded)
    whole = gradients(net, [batch])
    for parts in (2, 8):
        for name, gradient in gradients(net, batch.split(parts)).items():
            torch.testing.assert_close(gradient, whole[name], atol=2e-5, rtol=1e-3, msg=f"{name} in {parts} parts")


def test_sums_add_up():
    net, batch = networks(**DROPOUT), masked_batch(rows=8, padded=True)
    whole = net(batch, draws(batch)).detached()
    parts = [net(part, draws(part)).detached() for part in batch.split(4)]
    for name, value in whole.items():
        torch.testing.assert_close(sum(part[name] for part in parts), value, msg=name)


def test_a_packed_batch_needs_no_mask():
    net, packed = networks(), masked_batch()
    masked = MaskedBatch(**{name: getattr(packed, name) for name in packed.__slots__ if name != "is_packed"})
    assert packed.is_packed
    assert not masked.is_packed
    for name, value in net(masked, draws(masked)).detached().items():
        torch.testing.assert_close(net(packed, draws(packed)).detached()[name], value)


def test_padding_changes_nothing():
    net, batch = networks(), masked_batch(rows=4, padded=True)
    other = copy.copy(batch.original_ids).masked_fill(~batch.attention_mask, 77)
    filled = MaskedBatch(
        torch.where(batch.attention_mask, batch.generator_input_ids, 77),
        other,
        batch.attention_mask,
        None,
        batch.masked_positions,
        batch.masked_weights,
        batch.rows,
    )
    for name, value in net(batch, draws(batch)).detached().items():
        torch.testing.assert_close(net(filled, draws(filled)).detached()[name], value)


def test_statistics_are_counts():
    net, batch = networks(), masked_batch(rows=8, padded=True)
    shake(net)
    sums = {name: value.item() for name, value in net(batch, draws(batch)).detached().items()}
    corruption = corrupt(net, batch, draws(batch), net.objective_config)
    called = (net.discriminator_logits(corruption.corrupted_ids, batch.attention_mask) > 0) & batch.attention_mask
    assert sums["num_replaced"] == corruption.is_replaced.sum()
    assert sums["discriminator_true_positives"] == (called & corruption.is_replaced).sum()
    assert sums["discriminator_false_positives"] == (called & ~corruption.is_replaced).sum()
    right = (called == corruption.is_replaced) & batch.attention_mask
    assert sums["discriminator_correct"] == right.sum()


def test_bf16_autocast_keeps_losses_in_float32():
    net, batch = networks(), masked_batch(rows=8)
    plain = net(batch, draws(batch))
    with torch.autocast("cpu", torch.bfloat16):
        sums = net(batch, draws(batch))
    assert all(value.dtype == torch.float32 for value in sums.detached().values())
    loss, plain_loss = sums.losses["generator_loss"].sum, plain.losses["generator_loss"].sum
    torch.testing.assert_close(loss, plain_loss, rtol=0.02, atol=0)


def test_same_seed_same_weights_and_global_random_state_untouched():
    state = torch.get_rng_state()
    first, second = networks(seed=3), networks(seed=3)
    batch = masked_batch()
    first(batch, draws(batch))
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_dropout_without_draws_is_refused():
    with pytest.raises(ValueError, match="draws must be given"):
        networks(**DROPOUT).discriminator_logits(masked_batch().original_ids, None)
    assert networks(**DROPOUT).eval().discriminator_logits(masked_batch().original_ids, None).shape == (4, 24)


def test_weights_start_as_in_the_original():
    net = networks(initializer_range=0.02, hidden_size=64, num_hidden_layers=4)
    layer = net.discriminator.layers[0].intermediate
    assert layer.weight.abs().max() <= 0.04
    assert layer.weight.std().item() == pytest.approx(0.0176, rel=0.05)  # a normal cut at two deviations
    assert (layer.bias == 0).all()
    assert net.discriminator_head.prediction.weight.abs().max() <= (6 / 65) ** 0.5
    assert net.discriminator_head.prediction.weight.abs().max() > 0.08
    assert (net.embeddings.word[VOCAB_SIZE:] == 0).all()


def test_a_batch_in_which_nothing_could_be_masked_has_a_loss():
    """Whole words may be longer than every row's budget."""
    net, batch = networks(), masked_batch()
    nothing = replace(batch, masked_weights=torch.zeros_like(batch.masked_weights))
    sums = net(nothing, draws(batch))
    assert torch.isfinite(sums.total(nothing.num_masked, nothing.num_real))
