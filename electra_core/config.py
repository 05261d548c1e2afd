"""The words of the method: sizes of the networks, masking, objective, optimizer.

Pure data. Nothing here imports torch, reads a file or a clock, so the service can check a spec without either.
Names are Transformers' for networks and the paper's for the objective (Clark et al. 2020, arXiv:2003.10555);
"G" is the original implementation, google-research/electra.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

VOCAB_PADDING_MULTIPLE = 64
"""Embedding rows are padded to a multiple of this: matrix units want it, and the extra logits are masked."""

DEFAULT_DECAY_FRACTION = 0.2
"""Of `warmup_stable_decay`: 10 to 20 % of the steps suffice (Hägele et al. 2024, arXiv:2405.18392, section 3)."""


class FrozenModel(BaseModel):
    """A value: immutable, without unknown keys, without NaN or infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, protected_namespaces=()
    )


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

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "hidden_size must be a multiple of num_attention_heads, "
                f"got {self.hidden_size} and {self.num_attention_heads}"
            )
        return self

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding matrix: `vocab_size` rounded up to a multiple of 64."""
        return -(-self.vocab_size // VOCAB_PADDING_MULTIPLE) * VOCAB_PADDING_MULTIPLE


class ModelConfig(FrozenModel):
    """Both networks. The discriminator has the sizes given here; the generator is a narrower copy of equal depth."""

    num_hidden_layers: Annotated[int, Field(ge=1, le=128)] = 12
    hidden_size: Annotated[int, Field(ge=8, le=16384)] = 256
    embedding_size: Annotated[int, Field(ge=8, le=16384)] = 128
    """Width of the embeddings both networks share."""
    num_attention_heads: Annotated[int, Field(ge=1, le=256)] = 4
    intermediate_size: Annotated[int, Field(ge=8, le=65536)] = 1024
    """Width of the feed-forward layer."""
    max_position_embeddings: Annotated[int, Field(ge=8, le=65536)] = 512
    """Rows of the position table, so the longest sequence in tokens."""
    generator_size_ratio: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Generator's width, feed-forward width and heads as a share of the discriminator's; depth stays. 1/4 to 1/2
    is best (paper, section 3.2). G calls this ratio `generator_hidden_size`."""
    hidden_dropout_prob: Annotated[float, Field(ge=0, lt=1)] = 0.1
    attention_probs_dropout_prob: Annotated[float, Field(ge=0, lt=1)] = 0.1
    layer_norm_eps: Annotated[float, Field(gt=0, le=1e-3)] = 1e-12
    initializer_range: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Standard deviation of the truncated normal that weights start from. 0.02 is right from hidden_size 256 up and
    far too small for a tiny network, which wants about 1/√hidden_size."""
    position_embedding_init: Literal["normal", "sinusoidal"] = "normal"
    """`normal` is the original's; `sinusoidal` starts the learned table from 0.1 × sinusoids, which tiny budgets
    profit from."""

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

    @property
    def generator_hidden_size(self) -> int:
        """Width of the generator."""
        return round(self.hidden_size * self.generator_size_ratio)

    @property
    def generator_num_attention_heads(self) -> int:
        """Heads of the generator: one per 64 of its width, as in G, but at least one."""
        return max(1, self.generator_hidden_size // 64)

    def discriminator(self, vocab_size: int) -> EncoderConfig:
        """The discriminator's encoder for a tokenizer of `vocab_size` ids."""
        return self._encoder(vocab_size, self.hidden_size, self.num_attention_heads, self.intermediate_size)

    def generator(self, vocab_size: int) -> EncoderConfig:
        """The generator's encoder for a tokenizer of `vocab_size` ids."""
        return self._encoder(
            vocab_size,
            self.generator_hidden_size,
            self.generator_num_attention_heads,
            max(1, round(self.intermediate_size * self.generator_size_ratio)),
        )

    def _encoder(self, vocab_size: int, hidden: int, heads: int, intermediate: int) -> EncoderConfig:
        return EncoderConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            embedding_size=self.embedding_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=heads,
            intermediate_size=intermediate,
            max_position_embeddings=self.max_position_embeddings,
            hidden_dropout_prob=self.hidden_dropout_prob,
            attention_probs_dropout_prob=self.attention_probs_dropout_prob,
            layer_norm_eps=self.layer_norm_eps,
            initializer_range=self.initializer_range,
            position_embedding_init=self.position_embedding_init,
        )


class MaskingConfig(FrozenModel):
    """Which positions the generator must fill, and what it sees there."""

    mask_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Masked positions per sequence, as a fraction of its real tokens, [CLS] and [SEP] counted. G calls it
    `mask_prob`; small and base use 0.15, large 0.25."""
    mask_token_fraction: Annotated[float, Field(ge=0, le=1)] = 0.85
    """Share of masked positions that show [MASK] to the generator; the rest show the original (G: inline 0.85)."""

    def num_masked(self, num_real_tokens: int) -> int:
        """Masked positions of a sequence of so many real tokens: at least one, rounded half to even, as in G."""
        return max(1, round(self.mask_fraction * num_real_tokens))


class ObjectiveConfig(FrozenModel):
    """loss = MLM(generator) + discriminator_weight · RTD(discriminator)."""

    name: Literal["electra"] = "electra"
    """Replaced-token detection with a generator trained by masked language modelling."""
    discriminator_weight: Annotated[float, Field(ge=0)] = 50.0
    """λ, the weight of the discriminator's loss (paper, section 3.1)."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the generator's logits when it samples. It never changes the loss."""
    disallow_correct: bool = False
    """The generator never samples the original token."""


class OptimizerConfig(FrozenModel):
    """How weights change: decoupled weight decay and one clip over both networks under every name."""

    name: Literal["electra_adam", "adamw", "muon"] = "electra_adam"
    """`electra_adam` is Adam without bias correction (G's `optimization.py`), `adamw` has it (arXiv:1711.05101), `muon`
    orthogonalises the momentum of matrices inside the networks and gives the rest to `adamw` (arXiv:2502.16982)."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 5e-4
    """Peak of the schedule."""
    schedule: Literal["linear", "cosine", "warmup_stable_decay"] = "linear"
    """`linear` is G's: linear decay from step 0 to zero at the last step, times the warm-up factor. `cosine` falls
    along half a cosine after the warm-up (arXiv:1608.03983). `warmup_stable_decay` stays at the peak and falls in a
    line over the last steps (arXiv:2404.06395)."""
    warmup_steps: Annotated[int, Field(ge=0)] = 10_000
    """The factor min(1, step / warmup_steps) multiplies the decay."""
    final_rate_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Rate at the last step as a share of the peak; `linear` always ends at zero."""
    decay_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of all steps in which `warmup_stable_decay` falls; 0.2 when absent."""
    layerwise_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """The rate of a layer is this times that of the layer above it, in both networks; heads have the full rate and
    embeddings the lowest. For training on from finished weights: it keeps what lower layers know."""
    discriminator_learning_rate_ratio: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Rate of the discriminator and its head as a multiple of the generator's. What the two share has the generator's.
    Where they share nothing this ratio, not λ, balances the two."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Decoupled; not applied to LayerNorm and biases. Embeddings are decayed."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """The gradient of both networks together is scaled down to this norm."""
    muon_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Share of Muon's momentum, Nesterov's, that is kept per step."""
    muon_ns_steps: Annotated[int, Field(ge=1, le=20)] = 5
    """Newton–Schulz iterations that make a matrix of momentum orthogonal."""
    muon_learning_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """Peak rate of the matrices Muon takes; `learning_rate` when absent, which fits since updates are as large as
    AdamW's. The schedule is the same."""

    @model_validator(mode="after")
    def _fields_have_a_use(self) -> Self:
        if self.schedule == "linear" and self.final_rate_fraction:
            raise ValueError(
                "final_rate_fraction must be 0 where schedule is linear, which ends at zero, "
                f"got {self.final_rate_fraction}"
            )
        if self.schedule != "warmup_stable_decay" and self.decay_fraction is not None:
            raise ValueError(
                "decay_fraction must be absent unless schedule is warmup_stable_decay, "
                f"got {self.decay_fraction} and {self.schedule}"
            )
        if self.name != "muon" and self.muon_learning_rate is not None:
            raise ValueError(
                f"muon_learning_rate must be absent unless name is muon, got {self.muon_learning_rate} and {self.name}"
            )
        return self

    def decay_steps(self, num_train_steps: int) -> int:
        """Steps in which `warmup_stable_decay` falls: at least one."""
        fraction = DEFAULT_DECAY_FRACTION if self.decay_fraction is None else self.decay_fraction
        return max(1, round(fraction * num_train_steps))
