"""A start in which heads look at the tokens beside their own, and others at tokens that are alike.

From random weights an encoder has to find out where a token's neighbours are before it can learn anything of their
order; until then a masked language model knows frequencies and topics alone, and its loss stays on a plateau for
millions of tokens. Here that much is built in: some features of the embeddings hold the position and hardly anything
of the word, and queries and keys of the first layer compare them, two thirds of the heads at offsets of their own. The
last third of the heads, in every layer, starts with keys equal to its queries: it looks for what is like its own token,
wherever that stands, without which two texts are hardly compared. All of it is learned on from there, and the network
is an ordinary one: only the numbers it starts from differ.

V padded_vocab_size, P positions, E embedding_size, F `EncoderConfig.num_position_features`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from electra_core.config import EncoderConfig

LONGEST_PERIOD = 200 * 2 * math.pi
"""Tokens, of the slowest sinusoid. Only quick ones tell neighbours apart."""
POSITION_SCALE = 2.0
"""Height of the sinusoids as a multiple of `initializer_range`."""
WORD_SHARE = 0.1
"""What is left of the word embeddings in the features that hold the position."""
SAMENESS = 6.0
"""Score of an equal token where a head looks for those, others being at 0: among 128 tokens about 3/4 of the weight."""
SHARPNESS = 1.25
"""How much higher a head scores the position it looks for than the one beside it: e^1.25 = 3.5 times its weight."""
_TRUNCATED_VARIANCE = 0.774
"""Of a standard normal that is cut at two standard deviations."""


def head_offsets(num_heads: int) -> list[int]:
    """Where the first two thirds of the heads look, in tokens from their own: −1, 1, −2, 2 and so on.

    The others look for equal tokens.
    """
    return [-(index // 2 + 1) if index % 2 == 0 else index // 2 + 1 for index in range(math.ceil(num_heads * 2 / 3))]


@torch.no_grad()
def separate_positions_(word_VE: Tensor, position_PE: Tensor, config: EncoderConfig) -> None:
    """Give the first F features to the position, and all others to the word."""
    width = config.num_position_features
    angles = torch.arange(len(position_PE), dtype=torch.float64)[:, None] * _frequencies(width)
    height = POSITION_SCALE * config.initializer_range
    position_PE.zero_()
    position_PE[:, 0:width:2] = (height * angles.sin()).to(position_PE)
    position_PE[:, 1:width:2] = (height * angles.cos()).to(position_PE)
    word_VE[:, :width] *= WORD_SHARE


@torch.no_grad()
def hand_on_positions_(projection: nn.Linear, config: EncoderConfig) -> None:
    """Let the first F hidden features be the first F of the embeddings, as they are."""
    width = config.num_position_features
    projection.weight[:width] = torch.eye(width, config.embedding_size)


@torch.no_grad()
def look_beside_(query_key_value: nn.Linear, config: EncoderConfig) -> None:
    """Let the first F features of each head's queries and keys compare positions, at the head's offset.

    A query's sinusoids are turned by the offset, so that the product with a key is highest that many tokens away.
    """
    width, hidden, num_heads = config.num_position_features, config.hidden_size, config.num_attention_heads
    head_width = hidden // num_heads
    frequencies = _frequencies(width)
    gain = math.sqrt(SHARPNESS / _contrast(config))
    for head, offset in enumerate(head_offsets(num_heads)):
        turned = torch.zeros(width, hidden, dtype=torch.float64)
        even, odd = torch.arange(0, width, 2), torch.arange(1, width, 2)
        cosine, sine = (frequencies * offset).cos(), (frequencies * offset).sin()
        turned[even, even], turned[even, odd] = cosine, sine
        turned[odd, even], turned[odd, odd] = -sine, cosine
        start = head * head_width
        query_key_value.weight[start : start + width] = (gain * turned).to(query_key_value.weight)
        keys = gain * torch.eye(width, hidden)
        query_key_value.weight[hidden + start : hidden + start + width] = keys.to(query_key_value.weight)


@torch.no_grad()
def look_for_likes_(query_key_value: nn.Linear, config: EncoderConfig, num_position_features: int) -> None:
    """Let the last third of the heads compare tokens by what they are: their keys start equal to their queries.

    So a token finds the same one in another text, to which a network this small hardly comes by itself. The product of
    queries' and keys' weights then is about a multiple of the identity, as in trained networks (mimetic initialization:
    Trockman and Kolter 2023, arXiv:2305.09828).

    Args:
        query_key_value: of any layer.
        config: its network's.
        num_position_features: the first so many features, which are the position's, do not count.
    """
    hidden, num_heads = config.hidden_size, config.num_attention_heads
    width = hidden // num_heads
    variance = _TRUNCATED_VARIANCE * config.initializer_range**2
    gain = math.sqrt(SAMENESS / (math.sqrt(width) * variance * (hidden - num_position_features)))
    for head in range(len(head_offsets(num_heads)), num_heads):
        queries = query_key_value.weight[head * width : (head + 1) * width]
        queries *= gain
        queries[:, :num_position_features] = 0.0
        query_key_value.weight[hidden + head * width : hidden + (head + 1) * width] = queries


def _frequencies(width: int) -> Tensor:
    """float64[F / 2], radians per token, from 1 down."""
    steps = torch.arange(width // 2, dtype=torch.float64) / (width // 2)
    return torch.exp(-steps * math.log(LONGEST_PERIOD / (2 * math.pi)))


def _contrast(config: EncoderConfig) -> float:
    """Difference of the scores of a position and the one beside it where queries and keys have a gain of 1."""
    width, total = config.num_position_features, config.embedding_size
    deviation = config.initializer_range
    height = POSITION_SCALE * deviation
    words = _TRUNCATED_VARIANCE * deviation**2 * (total - width + WORD_SHARE**2 * width) / total
    positions = height**2 / 2 * width / total
    types = _TRUNCATED_VARIANCE * deviation**2
    after_layer_norm = height**2 / (words + positions + types)
    apart = float((1 - _frequencies(width).cos()).sum())
    return after_layer_norm * apart / math.sqrt(config.hidden_size // config.num_attention_heads)
