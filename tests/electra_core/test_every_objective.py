"""What holds for every objective: who gets gradient, that sums add up, that padding and order do not matter."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from objective_table import ALL, STAGES, batch_for, build
from tiny import SPECIAL, VOCAB_SIZE, draws
from transformers import ElectraConfig, ElectraForMaskedLM

from electra_core.config import ObjectiveConfig, OptimizerConfig
from electra_core.conversion.to_transformers import discriminator_state_dict, transformers_config
from electra_core.metrics import figures
from electra_core.noise import NoiseGenerator, noise_weights
from electra_core.objectives import OBJECTIVES
from electra_core.objectives.detection import at_masked_positions
from electra_core.objectives.electra import at_random_positions
from electra_core.optimizer import make_optimizer, set_learning_rate
from electra_core.parts import exported_networks

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
SAMPLING = ["electra", "electra_15", "random_15", "replace_mlm", "all_tokens_mlm", "electric", "adversarial"]
GENERATOR_PARTS = ("generator.", "generator_head.", "generator_baseline", "cloze_towers.", "cloze_head.")


def main_loss(sums):
    return sums.losses["discriminator_loss" if "discriminator_loss" in sums.losses else "mlm_loss"].sum


def test_the_table_has_every_objective():
    assert {config.name for config in ALL.values()} == set(OBJECTIVES)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_every_parameter_is_trained_or_frozen(name, stage):
    """DistributedDataParallel waits for the gradient of each parameter that takes one."""
    net, batch = build(name, stage, **DROPOUT), batch_for(name, rows=8)
    net(batch, draws(batch)).total(batch.num_masked, batch.num_real).backward()
    for parameter_name, parameter in net.named_parameters():
        is_trained = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        assert is_trained == parameter.requires_grad, parameter_name
    assert any(parameter.requires_grad for parameter in net.parameters())


@pytest.mark.parametrize("sharing", ["none", "all", "gdes"])
@pytest.mark.parametrize("name", SAMPLING)
def test_every_parameter_is_trained_under_every_sharing(name, sharing):
    changes = {"sharing": sharing, "generator_size_ratio": 1.0}
    if (name, sharing) == ("electric", "all"):
        with pytest.raises(ValueError, match="whose cloze network is two towers"):
            build(name, **changes)
        return
    net, batch = build(name, **changes), batch_for(name, rows=8)
    net(batch, draws(batch)).total(batch.num_masked, batch.num_real).backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in net.parameters())


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("two_stage", {"generator_size_ratio": 0.5}, "generator_size_ratio must be 1"),
        ("two_stage", {"sharing": "gdes"}, "sharing must be 'none'"),
        ("two_stage", {"generator_num_hidden_layers": 1}, "must be absent or equal to num_hidden_layers"),
        ("mlm", {"sharing": "none"}, "sharing must be left at 'embeddings' where objective.name is 'mlm'"),
        ("uniform", {"sharing": "gdes"}, "where objective.generator is 'uniform', as there is no second network"),
        ("unigram", {"generator_num_hidden_layers": 1}, "generator_num_hidden_layers must be absent"),
    ],
)
def test_networks_that_make_no_sense_are_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        build(name, **changes)


@pytest.mark.parametrize("name", SAMPLING)
def test_no_gradient_reaches_the_generator_through_the_samples(name):
    net, batch = build(name), batch_for(name)
    main_loss(net(batch, draws(batch))).backward()
    gradients = {n: p.grad for n, p in net.named_parameters() if n.startswith(GENERATOR_PARTS)}
    assert gradients
    assert all(gradient is None for gradient in gradients.values())


def test_reinforce_reaches_the_generator_and_not_the_discriminator():
    net, batch = build("adversarial"), batch_for("adversarial")
    sums = net(batch, draws(batch))
    (sums.losses["reinforce_loss"].sum + sums.losses["baseline_loss"].sum).backward()
    for name, parameter in net.named_parameters():
        if not name.startswith("embeddings."):
            assert (parameter.grad is not None) == name.startswith(GENERATOR_PARTS), name


@pytest.mark.parametrize("name", ["electra", "electra_15", "random_15", "all_tokens_mlm", "adversarial"])
def test_a_lucky_sample_is_labelled_original(name):
    net, batch = build(name), batch_for(name)
    ids = torch.where(batch.original_ids > 4, 50, batch.original_ids)
    with torch.no_grad():
        net.generator_head.bias[50] = 1e4
    detection = net(dataclasses.replace(batch, original_ids=ids), draws(batch)).detection
    assert torch.equal(detection.corrupted_ids, ids)
    assert not detection.is_replaced.any()


def test_electrics_noise_is_noise_even_where_it_is_the_original():
    net, batch = build("electric"), batch_for("electric")
    ids = torch.where(batch.original_ids > 4, 50, batch.original_ids)
    with torch.no_grad():
        net.cloze_head.bias[50] = 1e4
    detection = net(dataclasses.replace(batch, original_ids=ids), draws(batch)).detection
    assert torch.equal(detection.corrupted_ids, ids)
    assert detection.is_replaced.sum() == batch.num_masked


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_sums_do_not_depend_on_how_the_batch_is_split(name, stage):
    net, batch = build(name, stage, **DROPOUT), batch_for(name, rows=8, padded=True)
    whole = net(batch, draws(batch)).detached()
    parts = [net(part, draws(part)).detached() for part in batch.split(4)]
    for key, value in whole.items():
        torch.testing.assert_close(sum(part[key] for part in parts), value, rtol=1e-5, atol=1e-4, msg=key)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_padding_changes_nothing(name, stage):
    net, batch = build(name, stage), batch_for(name, padded=True)
    filled = dataclasses.replace(
        batch,
        original_ids=batch.original_ids.masked_fill(~batch.attention_mask, 77),
        generator_input_ids=batch.generator_input_ids.masked_fill(~batch.attention_mask, 77),
    )
    for key, value in net(batch, draws(batch)).detached().items():
        torch.testing.assert_close(net(filled, draws(filled)).detached()[key], value, msg=key)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_counts_of_the_losses_are_the_batchs(name, stage):
    """The loop divides by these before it has run the networks."""
    net, batch = build(name, stage), batch_for(name, padded=True)
    for loss in net(batch, draws(batch)).losses.values():
        assert loss.positions == getattr(batch, loss.per)
        assert loss.sum.requires_grad == (loss.weight is not None)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_bf16_autocast_keeps_losses_in_float32(name, stage):
    net, batch = build(name, stage), batch_for(name)
    plain = net(batch, draws(batch))
    with torch.autocast("cpu", torch.bfloat16):
        sums = net(batch, draws(batch))
        sums.total(batch.num_masked, batch.num_real).backward()
    assert all(value.dtype == torch.float32 for value in sums.detached().values())
    if "generator_loss" in sums.losses:
        loss, plain_loss = sums.losses["generator_loss"].sum, plain.losses["generator_loss"].sum
        torch.testing.assert_close(loss, plain_loss, rtol=0.02, atol=0)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_figures_that_make_no_sense_are_absent(name, stage):
    net, batch = build(name, stage), batch_for(name)
    named = figures({key: value.item() for key, value in net(batch, draws(batch)).detached().items()})
    has_network = ALL[name].generator == "transformer" and name != "mlm"
    assert ("generator_loss" in named) == ("generator_accuracy" in named) == has_network
    assert ("mlm_loss" in named) == (name in {"mlm", "replace_mlm", "all_tokens_mlm"})
    detects = name not in {"mlm", "replace_mlm"} and (name, stage) != ("two_stage", 0)
    assert ("discriminator_f1" in named) == ("replaced_fraction" in named) == detects
    assert ("discriminator_loss" in named) == (detects and name != "all_tokens_mlm")


def test_random_positions_are_real_spread_evenly_and_as_many_as_are_masked():
    batch = batch_for("random_15", rows=2000, padded=True)
    chosen = at_random_positions(batch, draws(batch))
    assert torch.equal(chosen.sum(dim=1), batch.masked_weights.sum(dim=1))
    assert not (chosen[~batch.attention_mask] > 0).any()
    whole = batch_for("random_15", rows=4000)
    per_position = at_random_positions(whole, draws(whole)).sum(dim=0)
    assert ((per_position - per_position.mean()) ** 2 / per_position.mean()).sum() < 55  # 23 degrees of freedom
    is_masked = at_masked_positions(whole)
    both = (at_random_positions(whole, draws(whole)) * is_masked).sum() / whole.num_masked
    assert both.item() == pytest.approx(3 / 24, abs=0.01)  # as if drawn without a look at the mask


@pytest.mark.parametrize("kind", ["uniform", "unigram"])
def test_fixed_noise_has_its_distribution_and_never_a_special_token(kind):
    counts = torch.arange(VOCAB_SIZE) ** 2 if kind == "unigram" else None
    weights = noise_weights(VOCAB_SIZE, SPECIAL, counts)
    uniform = torch.rand(200_000, generator=torch.Generator().manual_seed(0))
    drawn = NoiseGenerator(weights).sample(uniform)
    expected = weights / weights.sum() * len(uniform)
    seen = torch.bincount(drawn, minlength=VOCAB_SIZE)
    assert not seen[:5].any()
    assert ((seen - expected)[5:] ** 2 / expected[5:]).sum() < 150  # 94 degrees of freedom
    disallowed = torch.full_like(drawn, 60)
    others = torch.bincount(NoiseGenerator(weights).sample(uniform, disallowed), minlength=VOCAB_SIZE)
    expected = torch.where(torch.arange(VOCAB_SIZE) == 60, 0, weights)
    expected = expected / expected.sum() * len(uniform)
    assert others[60] == 0
    assert ((others - expected)[expected > 0] ** 2 / expected[expected > 0]).sum() < 150


def test_networks_want_noise_exactly_where_the_generator_is_none():
    from electra_core.pretraining import ElectraForPretraining

    net = build("electra")
    for objective, noise in ((ObjectiveConfig(generator="uniform"), None), (ObjectiveConfig(), torch.ones(VOCAB_SIZE))):
        with pytest.raises(ValueError, match="noise must be given"):
            ElectraForPretraining(net.model_config, VOCAB_SIZE, objective, torch.Generator(), noise)
    with pytest.raises(ValueError, match="at least two of them above 0"):
        NoiseGenerator(torch.zeros(VOCAB_SIZE))


def test_no_checkpoint_holds_the_noise():
    assert not any("noise" in key for key in build("unigram").state_dict())


@pytest.mark.parametrize("optimizer_name", ["electra_adam", "adamw", "muon"])
def test_the_switch_leaves_the_discriminator_without_moments(optimizer_name):
    net, batch = build("two_stage", is_shaken=False), batch_for("two_stage")
    net.requires_grad_(True)
    optimizer = make_optimizer(net, OptimizerConfig(name=optimizer_name, learning_rate=1e-3))
    set_learning_rate(optimizer, 1e-3)
    for stage in (0, 1):
        net.enter_stage(stage, is_start=stage == 1)
        is_fresh = [p not in optimizer.state for p in net.discriminator.parameters()]
        assert all(is_fresh)
        before = {name: p.clone() for name, p in net.named_parameters()}
        net(batch, draws(batch)).total(batch.num_masked, batch.num_real).backward()
        optimizer.step()
        optimizer.zero_grad()
        for name, parameter in net.named_parameters():
            is_of_generator = name.startswith(("generator.", "generator_head.", "embeddings."))
            if is_of_generator == (stage == 1):
                assert torch.equal(parameter, before[name]), name
    assert all(p in optimizer.state for p in net.discriminator.parameters())


@pytest.mark.parametrize("name", ["mlm", "replace_mlm", "all_tokens_mlm"])
@torch.no_grad()
def test_a_main_network_that_predicts_is_a_masked_language_model_to_transformers(name):
    net, batch = build(name).eval(), batch_for(name, padded=True)
    config = transformers_config(net.discriminator.config, SPECIAL, "ElectraForMaskedLM")
    theirs = ElectraForMaskedLM(ElectraConfig.from_dict(config)).eval()
    missing, unexpected = theirs.load_state_dict(discriminator_state_dict(net), strict=False)
    assert set(missing) <= {"generator_lm_head.weight", "electra.embeddings.position_ids"}
    assert all(key.startswith("discriminator_predictions.") for key in unexpected)
    theirs.tie_weights()
    logits = theirs(batch.original_ids, batch.attention_mask.long()).logits
    hidden = net.discriminator_hidden(batch.original_ids, batch.attention_mask)
    ours = net.language_logits(hidden)[..., :VOCAB_SIZE]
    real = batch.attention_mask
    torch.testing.assert_close(ours[real], logits[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "networks"),
    [
        ("electra", ("discriminator", "generator")),
        ("uniform", ("discriminator",)),
        ("mlm", ("encoder",)),
        ("replace_mlm", ("encoder", "generator")),
        ("electric", ("discriminator",)),
    ],
)
def test_networks_worth_keeping(name, networks):
    assert exported_networks(ALL[name]) == networks
