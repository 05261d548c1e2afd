"""Finetuning networks against Transformers' classes, and the rules of their rates and losses."""

from __future__ import annotations

import math

import pytest
import torch
import transformers

from electra_core.batches import SpecialTokens, TokenBatch
from electra_core.config import EncoderConfig, HeadConfig, OptimizerConfig, TaskKind
from electra_core.conversion.finetuned import (
    ARCHITECTURES,
    finetuned_config,
    finetuned_state_dict,
    pretrained_backbone,
)
from electra_core.finetuning.losses import NO_LABEL, task_loss
from electra_core.finetuning.network import ElectraForFinetuning
from electra_core.optimizer import parameter_groups
from electra_core.randomness import Draws

SPECIAL = SpecialTokens(pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4)
ENCODER = EncoderConfig(
    vocab_size=101,
    hidden_size=48,
    embedding_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
    initializer_range=0.1,
)
HEADS = [
    HeadConfig(task="classification", num_labels=5),
    HeadConfig(task="classification", num_labels=5, style="original"),
    HeadConfig(task="regression"),
    HeadConfig(task="regression", style="original"),
    HeadConfig(task="token_classification", num_labels=7),
    HeadConfig(task="question_answering"),
    HeadConfig(task="multiple_choice"),
]


def name_of(head: HeadConfig) -> str:
    return f"{head.task}-{head.style}"


def network_of(head: HeadConfig, seed: int = 0) -> ElectraForFinetuning:
    network = ElectraForFinetuning(ENCODER, head, torch.Generator().manual_seed(seed))
    with torch.no_grad():  # biases and LayerNorms that are not at their start
        for name, parameter in network.named_parameters():
            rng = torch.Generator().manual_seed(len(name) + parameter.numel())
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=rng))
    return network


def batch_of(rows: int = 6, length: int = 17) -> TokenBatch:
    rng = torch.Generator().manual_seed(3)
    input_ids = torch.randint(5, ENCODER.vocab_size, (rows, length), generator=rng)
    lengths = torch.randint(5, length + 1, (rows,), generator=rng)
    lengths[0] = length
    mask = torch.arange(length) < lengths[:, None]
    types = (torch.arange(length) > lengths[:, None] // 2) & mask
    return TokenBatch(
        input_ids=torch.where(mask, input_ids, 0),
        attention_mask=mask,
        rows=torch.arange(rows),
        token_type_ids=types.long(),
    )


def exported(
    network: ElectraForFinetuning, label_range: tuple[float, float] | None = None
) -> transformers.PreTrainedModel:
    """Transformers' model of the export; refuses a missing or unexpected tensor."""
    labels = [f"label {index}" for index in range(network.head_config.num_labels)]
    config = finetuned_config(network, SPECIAL, labels if network.head_config.num_labels > 1 else ())
    model_class = getattr(transformers, ARCHITECTURES[network.head_config.task])
    model = model_class(transformers.ElectraConfig.from_dict(config))
    model.load_state_dict(finetuned_state_dict(network, label_range), strict=True)
    return model.eval()


def theirs(model: transformers.PreTrainedModel, batch: TokenBatch, num_choices: int = 1) -> torch.Tensor:
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask.long(),
        "token_type_ids": batch.token_type_ids,
    }
    if isinstance(model, transformers.ElectraForMultipleChoice):
        inputs = {name: tensor.view(-1, num_choices, tensor.shape[1]) for name, tensor in inputs.items()}
    with torch.no_grad():
        output = model(**inputs)
    if isinstance(model, transformers.ElectraForQuestionAnswering):
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    return output.logits


@pytest.mark.parametrize("head", HEADS, ids=name_of)
def test_exports_give_our_logits(head: HeadConfig) -> None:
    """Each export loads with no tensor missing or left over, and answers as our network does."""
    network, batch = network_of(head).eval(), batch_of()
    with torch.no_grad():
        ours = network(batch)
    got = theirs(exported(network), batch, num_choices=3)
    if head.task == "multiple_choice":
        got = got.reshape(-1, 1)
    if ours.dim() == 3:  # what stands at padding means nothing
        ours, got = ours[batch.attention_mask], got[batch.attention_mask]
    assert (ours - got).abs().max() < 2e-5


def test_an_exported_regression_answers_in_its_own_range() -> None:
    network, batch = network_of(HEADS[2]).eval(), batch_of()
    with torch.no_grad():
        ours = network(batch)
    got = theirs(exported(network, (1.0, 5.0)), batch)
    assert torch.allclose(got, 1.0 + 4.0 * ours, atol=1e-5)


@pytest.mark.parametrize("source", ["ElectraForPreTraining", "ElectraForMaskedLM", "ElectraModel"])
def test_every_class_gives_its_backbone(source: str) -> None:
    """Whatever head the pretrained class has, embeddings and layers are taken and our head stays as it was."""
    config = transformers.ElectraConfig.from_dict(finetuned_config(network_of(HEADS[0]), SPECIAL))
    torch.manual_seed(1)
    pretrained = getattr(transformers, source)(config).eval()
    network = network_of(HEADS[0]).eval()
    converted = pretrained_backbone(network, pretrained.state_dict())
    assert not converted.missing
    assert all(name.startswith("head.") for name in converted.untouched)
    network.load_state_dict(converted.state, strict=False)
    batch = batch_of()
    with torch.no_grad():
        hidden = network.encoder(
            network.embeddings(batch.input_ids, batch.token_type_ids, None, 0), batch.attention_mask, None
        )
        backbone = getattr(pretrained, "electra", pretrained)
        expected = backbone(batch.input_ids, batch.attention_mask.long(), batch.token_type_ids).last_hidden_state
    assert (hidden - expected)[batch.attention_mask].abs().max() < 2e-5


def test_losses_are_those_of_transformers() -> None:
    batch, rng = batch_of(), torch.Generator().manual_seed(5)
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask.long(),
        "token_type_ids": batch.token_type_ids,
    }
    rows, length = batch.input_ids.shape
    classes = torch.randint(0, 5, (rows,), generator=rng)
    tags = torch.where(batch.attention_mask, torch.randint(0, 7, (rows, length), generator=rng), NO_LABEL)
    numbers = torch.rand(rows, generator=rng)
    spans = torch.tensor([[1, 3], [0, 0], [2, 2], [1, 4], [0, 3], [3, 3]])
    cases: list[tuple[HeadConfig, torch.Tensor, dict[str, torch.Tensor]]] = [
        (HEADS[0], classes, {"labels": classes}),
        (HEADS[2], numbers, {"labels": numbers}),
        (HEADS[4], tags, {"labels": tags}),
        (HEADS[5], spans, {"start_positions": spans[:, 0], "end_positions": spans[:, 1]}),
    ]
    for head, labels, given in cases:
        network = network_of(head).eval()
        with torch.no_grad():
            ours = task_loss(head.task, network(batch), labels)
            loss = exported(network)(**inputs, **given).loss
        assert ours.item() == pytest.approx(loss.item(), abs=1e-5), head.task


def test_class_weights_make_a_weighted_mean() -> None:
    """Worked out by hand: two examples of unlike weight, for texts and for tokens."""
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])  # P = (1/4, 3/4), (1/2, 1/2)
    labels, weights = torch.tensor([0, 1]), torch.tensor([1.0, 3.0])
    expected = (1.0 * math.log(4.0) + 3.0 * math.log(2.0)) / 4.0
    assert task_loss("classification", logits, labels, weights).item() == pytest.approx(expected)
    tokens, tags = logits[:, None].repeat(1, 2, 1), torch.tensor([[0, NO_LABEL], [1, NO_LABEL]])
    assert task_loss("token_classification", tokens, tags, weights).item() == pytest.approx(expected)


def test_a_batch_without_any_labelled_token_has_no_loss() -> None:
    logits = torch.randn(2, 3, 4, requires_grad=True)
    loss = task_loss("token_classification", logits, torch.full((2, 3), NO_LABEL))
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_choices_are_weighed_against_each_other() -> None:
    logits = torch.tensor([[0.0], [math.log(3.0)], [0.0], [0.0]])
    loss = task_loss("multiple_choice", logits, torch.tensor([1, 0]), num_choices=2)
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)


def scales(config: OptimizerConfig) -> dict[str, float]:
    network = network_of(HEADS[0])
    by_parameter = {
        id(parameter): group["learning_rate_scale"]
        for group in parameter_groups(network, config)
        for parameter in group["params"]
    }
    return {name: by_parameter[id(parameter)] for name, parameter in network.named_parameters()}


@pytest.mark.parametrize(("skips_one", "first"), [(False, 1), (True, 2)])
def test_the_top_layer_has_one_decay_and_the_originals_has_two(skips_one: bool, first: int) -> None:
    """lr · d^(layers + 1 − layer), layers counted from 1; the original's code has one level more."""
    found = scales(OptimizerConfig(layerwise_decay=0.5, layerwise_decay_skips_one=skips_one))
    assert found["head.out_proj.weight"] == found["head.dense.bias"] == 1.0
    for layer, level in ((2, 0), (1, 1), (0, 2)):
        assert found[f"encoder.layers.{layer}.output.weight"] == 0.5 ** (first + level)
    for name in ("embeddings.word", "embeddings.layer_norm.bias", "encoder.embeddings_projection.weight"):
        assert found[name] == 0.5 ** (first + 3)


def test_dropout_follows_from_seed_step_and_row() -> None:
    network, batch = network_of(HEADS[0]).train(), batch_of()
    again = [network(batch, Draws(1, step, batch.rows)) for step in (0, 0, 1)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])
    with pytest.raises(ValueError, match="draws must be given"):
        network(batch)


@pytest.mark.parametrize(
    ("task", "num_labels", "style", "message"),
    [
        ("classification", 1, "transformers", "num_labels must be at least 2"),
        ("regression", 2, "transformers", "num_labels must be 1"),
        ("question_answering", 1, "original", "style must be 'transformers'"),
    ],
)
def test_impossible_heads_are_refused(task: TaskKind, num_labels: int, style: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadConfig.model_validate({"task": task, "num_labels": num_labels, "style": style})
