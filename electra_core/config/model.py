"""Sizes of the networks, and what they share."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from electra_core.config.base import FrozenModel

Sharing = Literal["none", "embeddings", "all", "gdes"]
"""What generator and discriminator have in common; see `ModelConfig.sharing`."""

VOCAB_PADDING_MULTIPLE = 64
"""Embedding rows are padded to a multiple of this: matrix units want it, and the extra logits are masked."""


MIN_POSITION_FEATURES = 4
"""Two sinusoids: one tells only what lies half a period apart."""


class EncoderConfig(FrozenModel):
    """One Transformer encoder: BERT's, post-LayerNorm, erf GELU. The names are those of Transformers."""

    vocab_size: Annotated[int, Field(ge=8)]
    """Token ids the tokenizer can produce. The embedding matrix has `padded_vocab_size` rows."""
    hidden_size: Annotated[int, Field(ge=1)]
    embedding_size: Annotated[int, Field(ge=1)]
    """Width of the embeddings; a projection to `hidden_size` exists only where the two differ."""
    num_hidden_layers: Annotated[int, Field(ge=1)]
    num_attention_heads: Annotated[int, Field(ge=1)]
    intermediate_size: Annotated[int, Field(ge=1)]
    max_position_embeddings: Annotated[int, Field(ge=8)]
    """Longest sequence, in tokens."""
    type_vocab_size: Annotated[int, Field(ge=1)] = 2
    hidden_dropout_prob: Annotated[float, Field(ge=0, lt=1)] = 0.1
    attention_probs_dropout_prob: Annotated[float, Field(ge=0, lt=1)] = 0.1
    layer_norm_eps: Annotated[float, Field(gt=0)] = 1e-12
    initializer_range: Annotated[float, Field(gt=0)] = 0.02
    """Standard deviation of the truncated normal that weights start from."""
    position_embedding_init: Literal["normal", "sinusoidal"] = "normal"
    attention_init: Literal["normal", "neighbours"] = "normal"
    """`neighbours`: see `electra_core.neighbours`."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "hidden_size must be a multiple of num_attention_heads, "
                f"got {self.hidden_size} and {self.num_attention_heads}"
            )
        return self

    @property
    def num_position_features(self) -> int:
        """Features that start as the position's: a quarter of the embedding at most, and half of a head, so that each
        head has others for what the words are; even. 0 without `attention_init: neighbours`, and without room for it.
        """
        if self.attention_init == "normal":
            return 0
        head_width = self.hidden_size // self.num_attention_heads
        width = min(self.embedding_size // 4, head_width // 2) // 2 * 2
        return width if width >= MIN_POSITION_FEATURES else 0

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding matrix: `vocab_size` rounded up to a multiple of 64."""
        return -(-self.vocab_size // VOCAB_PADDING_MULTIPLE) * VOCAB_PADDING_MULTIPLE


class ModelConfig(FrozenModel):
    """Both networks. The discriminator has the sizes given here; the generator is a narrower copy, of equal depth
    unless `generator_num_hidden_layers` says otherwise.
    """

    num_hidden_layers: Annotated[int, Field(ge=1, le=128)] = 12
    hidden_size: Annotated[int, Field(ge=8, le=16384)] = 256
    embedding_size: Annotated[int, Field(ge=8, le=16384)] = 128
    """Width of the embeddings of both networks, shared or not."""
    num_attention_heads: Annotated[int, Field(ge=1, le=256)] = 4
    intermediate_size: Annotated[int, Field(ge=8, le=65536)] = 1024
    """Width of the feed-forward layer."""
    max_position_embeddings: Annotated[int, Field(ge=8, le=65536)] = 512
    """Rows of the position table, so the longest sequence in tokens."""
    generator_size_ratio: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Generator's width, feed-forward width and heads as a share of the discriminator's; depth stays. 1/4 to 1/2
    is best (paper, section 3.2). G calls this ratio `generator_hidden_size`."""
    generator_num_hidden_layers: Annotated[int, Field(ge=1, le=128)] | None = None
    """Layers of the generator; as many as the discriminator's when absent. DeBERTaV3 (arXiv:2111.09543) has half the
    depth at full width: half of `num_hidden_layers` here and `generator_size_ratio: 1`."""
    sharing: Sharing = "embeddings"
    """What the networks have in common. `embeddings`: token, position and type embeddings and their LayerNorm, as in
    G. `none`: nothing. `all`: the whole encoder, heads apart; the networks must be of one size. `gdes`: the
    discriminator's embeddings are the generator's, without gradient, plus a difference of its own that starts at 0
    (gradient-disentangled sharing, DeBERTaV3). Paper, section 3.2: nothing 83.6, token embeddings 84.3, all 84.4."""
    hidden_dropout_prob: Annotated[float, Field(ge=0, lt=1)] = 0.1
    attention_probs_dropout_prob: Annotated[float, Field(ge=0, lt=1)] = 0.1
    layer_norm_eps: Annotated[float, Field(gt=0, le=1e-3)] = 1e-12
    initializer_range: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Standard deviation of the truncated normal that weights start from. 0.02 is right from hidden_size 256 up and
    far too small for a tiny network, which wants about 1/√hidden_size."""
    position_embedding_init: Literal["normal", "sinusoidal"] = "normal"
    """`normal` is the original's; `sinusoidal` starts the learned table from 0.1 × sinusoids, which tiny budgets
    profit from."""
    attention_init: Literal["normal", "neighbours"] = "normal"
    """`normal` is the original's; `neighbours` starts two thirds of the heads in the first layer of each network at the
    tokens beside their own, at offsets −1, 1, −2, 2 and so on, and the last third of the heads in every layer at tokens
    that are alike, which a small budget otherwise spends on finding them. It decides how positions start, too. A
    network with embeddings under 16 or heads under 8 wide has no room for it and starts as `normal`."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "hidden_size must be a multiple of num_attention_heads, "
                f"got {self.hidden_size} and {self.num_attention_heads}"
            )
        width, heads = self.generator_hidden_size, self.generator_num_attention_heads
        if width < 8 or width % heads:
            raise ValueError(
                f"generator_size_ratio must leave the generator at least 8 wide and a multiple of its {heads} heads, "
                f"got {self.generator_size_ratio} of hidden_size {self.hidden_size}, which is {width}"
            )
        return self

    @model_validator(mode="after")
    def _all_weights_fit(self) -> Self:
        depth = self.generator_depth
        if self.sharing == "all" and (self.generator_size_ratio != 1 or depth != self.num_hidden_layers):
            raise ValueError(
                "sharing: all makes one encoder of both networks, so generator_size_ratio must be 1 and "
                "generator_num_hidden_layers absent or equal to num_hidden_layers, "
                f"got {self.generator_size_ratio}, and {depth} of {self.num_hidden_layers} layers"
            )
        return self

    @property
    def generator_hidden_size(self) -> int:
        """Width of the generator."""
        return round(self.hidden_size * self.generator_size_ratio)

    @property
    def generator_num_attention_heads(self) -> int:
        """Heads of the generator: one per 64 of its width, as in G, but at least one; with `sharing: all` the
        discriminator's, since it is the same encoder.
        """
        return self.num_attention_heads if self.sharing == "all" else max(1, self.generator_hidden_size // 64)

    @property
    def generator_depth(self) -> int:
        """Layers of the generator."""
        return self.generator_num_hidden_layers or self.num_hidden_layers

    def discriminator(self, vocab_size: int) -> EncoderConfig:
        """The discriminator's encoder for a tokenizer of `vocab_size` ids."""
        return self._encoder(
            vocab_size, self.num_hidden_layers, self.hidden_size, self.num_attention_heads, self.intermediate_size
        )

    def generator(self, vocab_size: int) -> EncoderConfig:
        """The generator's encoder for a tokenizer of `vocab_size` ids."""
        return self._encoder(
            vocab_size,
            self.generator_depth,
            self.generator_hidden_size,
            self.generator_num_attention_heads,
            max(1, round(self.intermediate_size * self.generator_size_ratio)),
        )

    def _encoder(self, vocab_size: int, depth: int, hidden: int, heads: int, intermediate: int) -> EncoderConfig:
        return EncoderConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            embedding_size=self.embedding_size,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=intermediate,
            max_position_embeddings=self.max_position_embeddings,
            hidden_dropout_prob=self.hidden_dropout_prob,
            attention_probs_dropout_prob=self.attention_probs_dropout_prob,
            layer_norm_eps=self.layer_norm_eps,
            initializer_range=self.initializer_range,
            position_embedding_init=self.position_embedding_init,
            attention_init=self.attention_init,
        )
