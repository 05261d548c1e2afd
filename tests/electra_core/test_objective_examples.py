"""Each objective on six tokens, worked out in NumPy from the networks' logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from objective_table import build, masked
from tiny import VOCAB_SIZE, draws

from electra_core.batches import MaskedBatch, TokenBatch
from electra_core.config import ObjectiveConfig
from electra_core.objectives.corruption import corrupt

SIX = torch.tensor([[2, 10, 11, 12, 13, 3]])
"""[CLS] a b c d [SEP]; two of a, b, c and d are masked."""


def six_tokens(name: str = "electra") -> MaskedBatch:
    batch = TokenBatch(SIX, torch.ones_like(SIX, dtype=torch.bool), torch.arange(1), is_packed=True)
    return masked(batch, name, mask_fraction=0.4)


def array(tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def cross_entropy(logits: np.ndarray, ids) -> float:
    return -sum(log_softmax(row)[token] for row, token in zip(logits, ids, strict=True))


def binary_cross_entropy(logits, labels) -> float:
    return -sum(
        np.log(sigmoid(logit)) if label else np.log(1 - sigmoid(logit))
        for logit, label in zip(logits, labels, strict=True)
    )


def worked(name: str, stage: int = 0):
    """Networks, batch, the result, and of the batch: masked positions and the original tokens there."""
    net, batch = build(name, stage), six_tokens(name)
    positions = batch.masked_positions[0].tolist()
    assert len(positions) == batch.num_masked == 2
    return net, batch, net(batch, draws(batch)), positions, SIX[0, positions].tolist()


def generator_logits(net, batch) -> np.ndarray:
    return array(net.generator_logits(batch.generator_input_ids, None, batch.masked_positions)[0])


def loss_of(sums, name: str) -> float:
    return sums.losses[name].sum.item()


def test_electra():
    net, batch, sums, positions, originals = worked("electra")
    seen = sums.detection.corrupted_ids
    is_replaced = [seen[0, t] != SIX[0, t] for t in range(6)]
    generator = cross_entropy(generator_logits(net, batch), originals)
    discriminator = binary_cross_entropy(array(net.discriminator_logits(seen, None)[0]), is_replaced)
    assert loss_of(sums, "generator_loss") == pytest.approx(generator, rel=1e-5)
    assert loss_of(sums, "discriminator_loss") == pytest.approx(discriminator, rel=1e-5)
    assert sums.total(2, 6).item() == pytest.approx(generator / 2 + 50 * discriminator / 6, rel=1e-5)
    assert [t for t in range(6) if t not in positions and is_replaced[t]] == []


def test_electra_15_asks_masked_positions_alone():
    net, _, sums, positions, _ = worked("electra_15")
    seen = sums.detection.corrupted_ids
    logits = array(net.discriminator_logits(seen, None)[0])
    expected = binary_cross_entropy(logits[positions], [seen[0, t] != SIX[0, t] for t in positions])
    assert loss_of(sums, "discriminator_loss") == pytest.approx(expected, rel=1e-5)
    total = loss_of(sums, "generator_loss") / 2 + 50 * expected / 2
    assert sums.total(2, 6).item() == pytest.approx(total, rel=1e-5)
    assert sums.statistics["num_scored"] == 2


def test_random_15_asks_as_many_positions_chosen_anew():
    net, _, sums, _, _ = worked("random_15")
    seen, asked = sums.detection.corrupted_ids, sums.detection.is_scored[0].nonzero().flatten().tolist()
    logits = array(net.discriminator_logits(seen, None)[0])
    expected = binary_cross_entropy(logits[asked], [seen[0, t] != SIX[0, t] for t in asked])
    assert len(asked) == 2
    assert loss_of(sums, "discriminator_loss") == pytest.approx(expected, rel=1e-5)


def test_replace_mlm_predicts_originals_from_the_corrupted_input():
    net, batch, sums, positions, originals = worked("replace_mlm")
    seen = corrupt(net, batch, draws(batch), net.objective_config).corrupted_ids
    logits = array(net.language_logits(net.discriminator_hidden(seen, None))[0, :, :VOCAB_SIZE])
    expected = cross_entropy(logits[positions], originals)
    assert loss_of(sums, "mlm_loss") == pytest.approx(expected, rel=1e-5)
    generator = cross_entropy(generator_logits(net, batch), originals)
    assert sums.total(2, 6).item() == pytest.approx(generator / 2 + expected / 2, rel=1e-5)
    assert sums.statistics["mlm_correct"] == sum(logits[positions].argmax(axis=1) == originals)


def test_all_tokens_mlm_mixes_copying_and_predicting():
    net, _, sums, _, _ = worked("all_tokens_mlm")
    seen = sums.detection.corrupted_ids
    hidden = net.discriminator_hidden(seen, None)
    copies = sigmoid(-array(net.discriminator_head(hidden)[0]))
    softmax = np.exp(log_softmax(array(net.language_logits(hidden)[0, :, :VOCAB_SIZE])))
    mixture = (1 - copies)[:, None] * softmax
    mixture[range(6), seen[0].tolist()] += copies
    assert mixture.sum(axis=1) == pytest.approx(np.ones(6))
    expected = -np.log(mixture[range(6), SIX[0].tolist()]).sum()
    assert loss_of(sums, "mlm_loss") == pytest.approx(expected, rel=1e-5)
    assert sums.statistics["mlm_correct"] == (mixture.argmax(axis=1) == SIX[0].numpy()).sum()


@pytest.mark.parametrize("gate", [80.0, -80.0, 1e4])
def test_all_tokens_mlm_is_stable_at_a_certain_gate(gate):
    net, batch = build("all_tokens_mlm"), six_tokens()
    with torch.no_grad():
        net.discriminator_head.prediction.weight.zero_()
        net.discriminator_head.prediction.bias.fill_(gate)
    sums = net(batch, draws(batch))
    sums.total(2, 6).backward()
    assert torch.isfinite(sums.losses["mlm_loss"].sum)
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def test_mlm_is_one_network_that_fills_masks():
    net, batch, sums, positions, originals = worked("mlm")
    hidden = net.discriminator_hidden(batch.generator_input_ids, None)
    logits = array(net.language_logits(hidden)[0, :, :VOCAB_SIZE])
    expected = cross_entropy(logits[positions], originals)
    assert loss_of(sums, "mlm_loss") == pytest.approx(expected, rel=1e-5)
    assert sums.total(2, 6).item() == pytest.approx(expected / 2, rel=1e-5)
    assert set(sums.losses) == {"mlm_loss"}
    assert {name.partition(".")[0] for name, _ in net.named_parameters()} == {
        "embeddings", "discriminator", "language_head"}  # fmt: skip


def test_electric_is_noise_contrastive_estimation():
    """P(noise) = k·q / (k·q + (n − k)·exp(−E)), with n = 6 tokens of which k = 2 are noise."""
    net, _, sums, positions, _ = worked("electric")
    seen = sums.detection.corrupted_ids
    energy = array(net.discriminator_logits(seen, None)[0])
    log_q = log_softmax(array(net.cloze_logits(SIX, None)[0, :, :VOCAB_SIZE]))
    expected = 0.0
    for t, token in enumerate(seen[0].tolist()):
        noise, model = 2 * np.exp(log_q[t, token]), 4 * np.exp(-energy[t])
        expected -= np.log((noise if t in positions else model) / (noise + model))
    assert loss_of(sums, "discriminator_loss") == pytest.approx(expected, rel=1e-5)
    cloze = -log_q[range(6), SIX[0].tolist()].sum()
    assert loss_of(sums, "generator_loss") == pytest.approx(cloze, rel=1e-5)
    assert sums.total(2, 6).item() == pytest.approx(cloze / 6 + 50 * expected / 6, rel=1e-5)


@pytest.mark.parametrize("position", [0, 2, 5])
@torch.no_grad()
def test_the_cloze_network_knows_every_token_but_the_one_it_predicts(position):
    net = build("electric").eval()
    before = net.cloze_logits(SIX, None)
    after = net.cloze_logits(SIX.scatter(1, torch.tensor([[position]]), 77), None)
    is_changed = [not torch.equal(before[0, t], after[0, t]) for t in range(6)]
    assert is_changed == [t != position for t in range(6)]


def test_two_stage_trains_the_generator_then_the_discriminator():
    net, batch, sums, _, originals = worked("two_stage")
    expected = cross_entropy(generator_logits(net, batch), originals)
    assert set(sums.losses) == {"generator_loss"}
    assert sums.detection is None
    assert sums.total(2, 6).item() == pytest.approx(expected / 2, rel=1e-5)

    net, batch, sums, _, originals = worked("two_stage", stage=1)
    seen = sums.detection.corrupted_ids
    logits = array(net.discriminator_logits(seen, None)[0])
    expected = binary_cross_entropy(logits, [seen[0, t] != SIX[0, t] for t in range(6)])
    assert sums.total(2, 6).item() == pytest.approx(expected / 6, rel=1e-5)
    watched = cross_entropy(generator_logits(net, batch), originals)
    assert loss_of(sums, "generator_loss") == pytest.approx(watched, rel=1e-5)


@torch.no_grad()
def test_the_second_stage_starts_from_the_generators_weights_and_keeps_them():
    net = build("two_stage", embedding_size=16)
    assert not torch.equal(net.generator_hidden(SIX, None), net.discriminator_hidden(SIX, None))
    net.enter_stage(1, is_start=True)
    assert torch.equal(net.generator_hidden(SIX, None), net.discriminator_hidden(SIX, None))
    net.embeddings.word.add_(1.0)
    net.enter_stage(1, is_start=False)  # as a resumed run does
    assert not torch.equal(net.generator_hidden(SIX, None), net.discriminator_hidden(SIX, None))


def test_adversarial_rewards_what_misleads():
    """The gradient of REINFORCE at the generator's bias, and of the baseline, from their definitions."""
    net, batch, sums, positions, _ = worked("adversarial")
    with torch.no_grad():
        net.generator_baseline.copy_(torch.linspace(-1, 1, net.generator_baseline.numel()))
    net.objective_config = ObjectiveConfig(name="adversarial", temperature=2.0)
    sums = net(batch, draws(batch))
    seen = sums.detection.corrupted_ids
    verdict = array(net.discriminator_logits(seen, None)[0, positions])
    is_replaced = [seen[0, t] != SIX[0, t] for t in positions]
    reward = np.array([binary_cross_entropy([v], [r]) for v, r in zip(verdict, is_replaced, strict=True)])
    hidden = array(net.generator_hidden(batch.generator_input_ids, None)[0, positions])
    scores = hidden @ array(net.generator_baseline)
    advantage = reward + np.log(sigmoid(scores))
    samples = seen[0, positions].tolist()
    log_p = log_softmax(generator_logits(net, batch) / 2.0)
    assert loss_of(sums, "reinforce_loss") == pytest.approx(-(advantage * log_p[[0, 1], samples]).sum(), rel=1e-4)
    targets = np.exp(-reward)
    baseline = -(targets * np.log(sigmoid(scores)) + (1 - targets) * np.log(1 - sigmoid(scores))).sum()
    assert loss_of(sums, "baseline_loss") == pytest.approx(baseline, rel=1e-4)

    # d(−A · log softmax(z / T)[x]) / dz = A · (softmax − onehot) / T, and the bias adds to z.
    onehot = np.eye(VOCAB_SIZE)[samples]
    expected = (advantage[:, None] * (np.exp(log_p) - onehot) / 2.0).sum(axis=0)
    (of_bias,) = torch.autograd.grad(sums.losses["reinforce_loss"].sum, net.generator_head.bias, retain_graph=True)
    np.testing.assert_allclose(array(of_bias)[:VOCAB_SIZE], expected, atol=1e-5)
    (of_baseline,) = torch.autograd.grad(sums.losses["baseline_loss"].sum, net.generator_baseline)
    np.testing.assert_allclose(array(of_baseline), (sigmoid(scores) - targets) @ hidden, atol=1e-5)
