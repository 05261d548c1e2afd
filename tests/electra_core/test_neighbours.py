"""The start in which heads look at the tokens beside their own."""

from __future__ import annotations

import pytest
import torch
from tiny import SPECIAL, VOCAB_SIZE, draws, networks
from torch import Tensor

from electra_core.batches import TokenBatch
from electra_core.config import EncoderConfig, MaskingConfig, ModelConfig, OptimizerConfig
from electra_core.encoder import Embeddings, Encoder
from electra_core.masking import apply_mask
from electra_core.neighbours import head_offsets
from electra_core.optimizer import make_optimizer, set_learning_rate

LENGTH = 40


def model(**changes: object) -> ModelConfig:
    sizes = {"num_hidden_layers": 2, "hidden_size": 96, "embedding_size": 64, "num_attention_heads": 3}
    start = {"position_embedding_init": "sinusoidal", "attention_init": "neighbours", "initializer_range": 0.07}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    fields = {"intermediate_size": 128, "max_position_embeddings": 64} | sizes | start | no_dropout | changes
    return ModelConfig.model_validate(fields)


def attention(config: EncoderConfig, input_ids: Tensor, layer: int) -> Tensor:
    """float[B, A, LENGTH, LENGTH]: weights of a layer's heads for int64[B, LENGTH]."""
    rng = torch.Generator().manual_seed(7)
    embeddings, encoder = Embeddings(config, rng), Encoder(config, rng, "encoder")
    hidden = embeddings(input_ids, None, None, 0)
    if encoder.embeddings_projection is not None:
        hidden = encoder.embeddings_projection(hidden)
    for before in encoder.layers[:layer]:
        hidden = before.eval()(hidden, None, None)
    width = config.hidden_size // config.num_attention_heads
    heads = (
        encoder.layers[layer].query_key_value(hidden).view(len(hidden), LENGTH, 3, config.num_attention_heads, width)
    )
    query, key, _ = heads.permute(2, 0, 3, 1, 4).unbind(0)
    return (query @ key.transpose(-1, -2) / width**0.5).softmax(-1)


def attention_by_offset(config: EncoderConfig) -> Tensor:
    """float[A, 2 LENGTH − 1]: mean weight of the first layer's heads at each offset, −LENGTH + 1 first."""
    input_ids = torch.randint(0, config.vocab_size, (8, LENGTH), generator=torch.Generator().manual_seed(8))
    weights = attention(config, input_ids, 0).mean(0)
    offsets = range(-LENGTH + 1, LENGTH)
    return torch.stack([torch.diagonal(weights, offset, -2, -1).mean(-1) for offset in offsets], -1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_size": 96},
        {"embedding_size": 128},
        {"num_attention_heads": 1},
        {"num_attention_heads": 6, "initializer_range": 0.02},
        {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "initializer_range": 0.02},
    ],
)
def test_each_head_looks_most_at_its_own_offset(changes: dict[str, object]) -> None:
    for config in (model(**changes).discriminator(500), model(**changes).generator(500)):
        offsets = head_offsets(config.num_attention_heads)
        weights = attention_by_offset(config)[: len(offsets)]
        expected = [offset + LENGTH - 1 for offset in offsets]
        assert weights.argmax(-1).tolist() == expected
        assert (weights.amax(-1) > 4 / LENGTH).all()


def test_a_normal_start_looks_nowhere_in_particular() -> None:
    weights = attention_by_offset(model(attention_init="normal").discriminator(500))
    assert (weights.amax(-1) < 4 / LENGTH).all()


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 96}, {"num_attention_heads": 6, "initializer_range": 0.02}])
@pytest.mark.parametrize("layer", [0, 1])
def test_the_last_third_of_the_heads_looks_for_equal_tokens(changes: dict[str, object], layer: int) -> None:
    def weight_on_likes(start: str) -> float:
        """Of the token's like, as a multiple of the mean of all other tokens."""
        config = model(**changes, attention_init=start).discriminator(500)
        heads = attention(config, ids, layer)[:, len(head_offsets(config.num_attention_heads)) :]
        weights = heads[:, :, 4].mean((0, 1))
        return (weights[29] / ((1 - weights[4] - weights[29]) / (LENGTH - 2))).item()

    rng = torch.Generator().manual_seed(7)
    ids = torch.stack([torch.randperm(500, generator=rng)[:LENGTH] for _ in range(32)])
    ids[:, 29] = ids[:, 4]
    assert weight_on_likes("neighbours") > 3
    assert weight_on_likes("normal") < 1.5


def test_offsets_are_the_nearest_on_both_sides() -> None:
    assert [head_offsets(count) for count in (1, 2, 3, 4)] == [[-1], [-1, 1], [-1, 1], [-1, 1, -2]]


@pytest.mark.parametrize("changes", [{"embedding_size": 12}, {"num_attention_heads": 24}])
def test_a_network_without_room_for_it_starts_as_normal(changes: dict[str, object]) -> None:
    state, normal = (
        Encoder(model(**changes, attention_init=start).discriminator(500), torch.Generator().manual_seed(0), "e")
        for start in ("neighbours", "normal")
    )
    assert all(torch.equal(one, other) for one, other in zip(state.parameters(), normal.parameters(), strict=True))


def test_the_order_of_tokens_is_learned_sooner() -> None:
    """Each token decides the next: whoever sees the neighbours of a masked token knows it."""
    losses = {start: loss_after(200, start) for start in ("normal", "neighbours")}
    assert losses["neighbours"] < 0.7 * losses["normal"]


def loss_after(num_steps: int, start: str) -> float:
    """Mean loss of the generator, nats per masked token, over the last twenty of so many steps."""
    sizes = {"embedding_size": 32, "hidden_size": 32, "num_attention_heads": 2, "generator_size_ratio": 1.0}
    net = networks(position_embedding_init="sinusoidal", attention_init=start, **sizes)
    optimizer = make_optimizer(net, OptimizerConfig(name="adamw", learning_rate=3e-3))
    losses = []
    for step in range(num_steps):
        rng = torch.Generator().manual_seed(step)
        first = torch.randint(0, VOCAB_SIZE - 5, (16, 1), generator=rng)
        ids = 5 + (first + 7 * torch.arange(24)) % (VOCAB_SIZE - 5)
        batch = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), torch.arange(16), is_packed=True)
        masked = apply_mask(batch, MaskingConfig(), SPECIAL, draws(batch, step))
        sums = net(masked, draws(batch, step))
        sums.total(masked.num_masked, masked.num_real).backward()
        set_learning_rate(optimizer, 3e-3)
        optimizer.step()
        optimizer.zero_grad()
        losses.append((sums.losses["generator_loss"].sum / masked.num_masked).item())
    return sum(losses[-20:]) / 20
