"""The words of the method: sizes of the networks, masking, objective, optimizer.

Pure data. Nothing here imports torch, reads a file or a clock, so the service can check a spec without either.
Names are Transformers' for networks and the paper's for the objective (Clark et al. 2020, arXiv:2003.10555);
"G" is the original implementation, google-research/electra.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

ObjectiveName = Literal[
    "electra",
    "electra_15",
    "random_15",
    "replace_mlm",
    "all_tokens_mlm",
    "mlm",
    "electric",
    "two_stage",
    "adversarial",
]
GeneratorKind = Literal["transformer", "uniform", "unigram"]

VOCAB_PADDING_MULTIPLE = 64
"""Embedding rows are padded to a multiple of this: matrix units want it, and the extra logits are masked."""


# Why a field of `ObjectiveConfig` has no meaning under an objective.
_NEED_A_NETWORK = {
    "mlm": "which has no generator",
    "electric": "whose noise is a two-tower cloze network",
    "two_stage": "whose discriminator starts from the generator's weights",
    "adversarial": "whose generator is trained against the discriminator",
}
_NO_TEMPERATURE = {
    "mlm": "which samples nothing",
    "electric": "whose loss needs the probabilities its noise was drawn with",
}
_ONE_LOSS = {
    "mlm": "which has one loss and nothing to weigh it against",
    "two_stage": "which minimises one loss at a time",
}
_MAY_BE_CORRECT = {
    "mlm": "which samples nothing",
    "electric": "whose noise must be able to be the original",
    "adversarial": "whose generator is rewarded where its sample is the original, too",
}


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
    """Share of masked positions that show [MASK] to the network that fills them (G: inline 0.85; BERT: 0.8)."""
    random_token_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of masked positions that show a token drawn evenly from the vocabulary (G: 0; BERT: 0.1). What neither
    share takes shows the original."""

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask_token_fraction + self.random_token_fraction > 1 + 1e-9:
            raise ValueError(
                "mask_token_fraction and random_token_fraction must add up to at most 1, "
                f"got {self.mask_token_fraction} and {self.random_token_fraction}"
            )
        return self

    def num_masked(self, num_real_tokens: int) -> int:
        """Masked positions of a sequence of so many real tokens: at least one, rounded half to even, as in G."""
        return max(1, round(self.mask_fraction * num_real_tokens))


class ObjectiveConfig(FrozenModel):
    """What is minimised: an objective of the paper (section 3.4 and appendices), and where replacements come from."""

    name: ObjectiveName = "electra"
    """`electra`: MLM(generator) + λ · RTD(discriminator) over every token. `electra_15`: RTD at masked positions only.
    `random_15`: RTD at as many other random positions. `replace_mlm`: the main network predicts the originals of
    masked positions from the corrupted input. `all_tokens_mlm`: it predicts every token, with a copy gate. `mlm`: BERT.
    `electric`: noise-contrastive estimation of an energy (arXiv:2012.08561). `two_stage`: the generator first, then the
    discriminator from its weights. `adversarial`: the generator is trained against the discriminator by REINFORCE."""
    generator: GeneratorKind = "transformer"
    """Where replacements come from: a network trained as a masked language model, `uniform` over all ordinary tokens,
    or `unigram`, their frequency in the corpus. The last two have nothing to train."""
    discriminator_weight: Annotated[float, Field(ge=0)] = 50.0
    """λ, the weight of the main network's loss beside the generator's (paper, section 3.1)."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the generator's logits when it samples. It never changes the loss."""
    disallow_correct: bool = False
    """The generator never samples the original token."""
    two_stage_switch_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """`two_stage` alone: share of the steps that train the generator; the rest train the discriminator. The paper
    gives both the same number."""

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        if self.generator != "transformer" and self.name in _NEED_A_NETWORK:
            raise ValueError(
                f"generator must be 'transformer' where name is {self.name!r}, {_NEED_A_NETWORK[self.name]}, "
                f"got {self.generator!r}"
            )
        if self.temperature != 1.0 and (self.generator != "transformer" or self.name in _NO_TEMPERATURE):
            reason = _NO_TEMPERATURE.get(self.name, f"since a {self.generator} generator has no logits to divide")
            raise ValueError(f"temperature must be 1 where name is {self.name!r}, {reason}, got {self.temperature}")
        if self.disallow_correct and self.name in _MAY_BE_CORRECT:
            raise ValueError(
                f"disallow_correct must be false where name is {self.name!r}, {_MAY_BE_CORRECT[self.name]}, got true"
            )
        default_weight = type(self).model_fields["discriminator_weight"].default
        if self.name in _ONE_LOSS and self.discriminator_weight != default_weight:
            raise ValueError(
                f"discriminator_weight must be left at {default_weight:g} where name is {self.name!r}, "
                f"{_ONE_LOSS[self.name]}, got {self.discriminator_weight:g}"
            )
        default_fraction = type(self).model_fields["two_stage_switch_fraction"].default
        if self.name != "two_stage" and self.two_stage_switch_fraction != default_fraction:
            raise ValueError(
                f"two_stage_switch_fraction must be left at {default_fraction:g} where name is {self.name!r}, which "
                f"has one stage, got {self.two_stage_switch_fraction:g}"
            )
        return self

    def stage_starts(self, num_train_steps: int) -> tuple[int, ...]:
        """First step of each stage of a run; every objective but `two_stage` has one stage."""
        if self.name != "two_stage":
            return (0,)
        return (0, round(self.two_stage_switch_fraction * num_train_steps))

    def stage_at(self, step: int, num_train_steps: int) -> int:
        """The stage that a step, from 0, belongs to; a pure function of the step, so that a job resumes in it."""
        return sum(start <= step for start in self.stage_starts(num_train_steps)) - 1


class OptimizerConfig(FrozenModel):
    """Adam without bias correction, decoupled weight decay, one clip over both networks (G's `optimization.py`)."""

    name: Literal["electra_adam"] = "electra_adam"
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 5e-4
    """Peak of the schedule."""
    schedule: Literal["linear"] = "linear"
    """Linear decay from step 0 to zero at the last step, times the warm-up factor."""
    warmup_steps: Annotated[int, Field(ge=0)] = 10_000
    """The factor min(1, step / warmup_steps) multiplies the decay."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Decoupled; not applied to LayerNorm and biases. Embeddings are decayed."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """The gradient of both networks together is scaled down to this norm."""
