"""What a model costs: parameters, arithmetic, memory. Plain arithmetic without torch: the service can quote it."""

from __future__ import annotations

from dataclasses import dataclass

from electra_core.config import EncoderConfig, MaskingConfig, ModelConfig

_SLACK_FRACTION = 0.005
_FLOAT_BYTES = 4


def max_masked_positions(masking: MaskingConfig, sequence_length: int) -> int:
    """N: masked positions a row of `sequence_length` tokens has room for (19 at 128 and 79 at 512 for 0.15).

    G adds 0.005 to the mask fraction before it cuts down to an integer.
    """
    return min(sequence_length, max(1, int((masking.mask_fraction + _SLACK_FRACTION) * sequence_length)))


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Numbers of trainable parameters."""

    embeddings: int
    """Shared: word (with the rows that pad the vocabulary), position, token type, LayerNorm."""
    generator: int
    """Encoder without embeddings."""
    discriminator: int
    """Encoder without embeddings."""
    generator_head: int
    """Without the tied word embeddings; its bias is padded as they are."""
    discriminator_head: int
    discriminator_exported: int
    """What finetuning starts from: embeddings without padding rows, and the discriminator without its head."""

    @property
    def total(self) -> int:
        """Everything pretraining trains."""
        networks = self.embeddings + self.generator + self.discriminator
        return networks + self.generator_head + self.discriminator_head


@dataclass(frozen=True, slots=True)
class Flops:
    """Floating-point operations of training per token of input."""

    generator: float
    """Encoder."""
    discriminator: float
    """Encoder."""
    heads: float
    """Both heads; the generator's at masked positions only."""

    @property
    def total(self) -> float:
        """Sum."""
        return self.generator + self.discriminator + self.heads


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """Memory of training on one worker, bytes."""

    weights: int
    gradients: int
    optimizer_moments: int
    activations: int

    @property
    def total(self) -> int:
        """Sum."""
        return self.weights + self.gradients + self.optimizer_moments + self.activations


def parameter_counts(model: ModelConfig, vocab_size: int) -> ParameterCounts:
    """Parameters of both networks for a tokenizer of `vocab_size` ids."""
    generator, discriminator = model.generator(vocab_size), model.discriminator(vocab_size)
    embedding, hidden = model.embedding_size, model.hidden_size
    tables = discriminator.max_position_embeddings + discriminator.type_vocab_size + 2  # 2: LayerNorm
    encoder = _encoder_parameters(discriminator)
    return ParameterCounts(
        embeddings=(discriminator.padded_vocab_size + tables) * embedding,
        generator=_encoder_parameters(generator),
        discriminator=encoder,
        generator_head=_linear(generator.hidden_size, embedding) + 2 * embedding + generator.padded_vocab_size,
        discriminator_head=_linear(hidden, hidden) + _linear(hidden, 1),
        discriminator_exported=(vocab_size + tables) * embedding + encoder,
    )


def training_flops_per_token(
    model: ModelConfig, masking: MaskingConfig, vocab_size: int, sequence_length: int
) -> Flops:
    """Arithmetic of the joint step per token.

    A multiply-add counts 2, the backward pass twice the forward pass, and only matrix products count: a look-up in the
    embeddings is free, the generator's head runs at N positions of each row. A layer costs 24h² + 4Lh where the
    feed-forward layer is 4h wide: 8h² for the four projections, 4Lh for attention, 4hf for the feed-forward layer.
    G's own script (1.29e18 for Small, here 1.15e18) and the paper (1.4e18) count otherwise.
    """
    generator, discriminator = model.generator(vocab_size), model.discriminator(vocab_size)
    hidden, embedding = generator.hidden_size, generator.embedding_size
    masked_share = max_masked_positions(masking, sequence_length) / sequence_length
    language_head = (2 * hidden * embedding + 2 * embedding * generator.padded_vocab_size) * masked_share
    detection_head = 2 * discriminator.hidden_size * (discriminator.hidden_size + 1)
    return Flops(
        generator=3.0 * _encoder_flops(generator, sequence_length),
        discriminator=3.0 * _encoder_flops(discriminator, sequence_length),
        heads=3.0 * (language_head + detection_head),
    )


def training_memory_bytes(
    model: ModelConfig,
    masking: MaskingConfig,
    vocab_size: int,
    sequence_length: int,
    rows: int,
) -> MemoryBytes:
    """Memory of one float32 worker that computes `rows` rows at a time; workers each hold all of it.

    Weights, gradients: 4 bytes a parameter; Adam's two moments: 8 (Muon keeps one for its matrices). Activations, kept
    for the backward pass, in floats: per token and layer 9h + 2f (input, query-key-value, scaled query, context, two
    LayerNorm inputs, one LayerNorm output; feed-forward before and after GELU) and A · L attention probabilities; per
    masked position three rows as wide as the vocabulary (log-probabilities, sampling weights, gradient). Dropout adds a
    byte for each element it sees and a second copy of the probabilities. An estimate: allocators round up, and autocast
    to bf16 keeps less.
    """
    parameter_bytes = _FLOAT_BYTES * parameter_counts(model, vocab_size).total
    generator, discriminator = model.generator(vocab_size), model.discriminator(vocab_size)
    tokens = rows * sequence_length
    masked = rows * max_masked_positions(masking, sequence_length)
    activations = sum(tokens * _layer_activation_bytes(e, sequence_length) for e in (generator, discriminator))
    activations += 2 * _FLOAT_BYTES * tokens * (2 * model.embedding_size)  # each network's embeddings and LayerNorm
    activations += 3 * _FLOAT_BYTES * masked * generator.padded_vocab_size
    return MemoryBytes(
        weights=parameter_bytes,
        gradients=parameter_bytes,
        optimizer_moments=2 * parameter_bytes,
        activations=activations,
    )


def _linear(in_features: int, out_features: int) -> int:
    return in_features * out_features + out_features


def _encoder_parameters(encoder: EncoderConfig) -> int:
    hidden, intermediate = encoder.hidden_size, encoder.intermediate_size
    feed_forward = _linear(hidden, intermediate) + _linear(intermediate, hidden)
    layer = 4 * _linear(hidden, hidden) + feed_forward + 4 * hidden  # 4h: two LayerNorms
    return encoder.num_hidden_layers * layer + (_linear(encoder.embedding_size, hidden) if _projects(encoder) else 0)


def _encoder_flops(encoder: EncoderConfig, sequence_length: int) -> int:
    """Forward, per token."""
    hidden = encoder.hidden_size
    layer = 8 * hidden * hidden + 4 * hidden * encoder.intermediate_size + 4 * sequence_length * hidden
    projection = 2 * encoder.embedding_size * hidden if _projects(encoder) else 0
    return encoder.num_hidden_layers * layer + projection


def _layer_activation_bytes(encoder: EncoderConfig, sequence_length: int) -> int:
    """All layers of an encoder, per token."""
    hidden, scores = encoder.hidden_size, encoder.num_attention_heads * sequence_length
    layer = _FLOAT_BYTES * (9 * hidden + 2 * encoder.intermediate_size + scores)
    if encoder.hidden_dropout_prob > 0:
        layer += 2 * hidden
    if encoder.attention_probs_dropout_prob > 0:
        layer += scores * (1 + _FLOAT_BYTES)
    return encoder.num_hidden_layers * layer


def _projects(encoder: EncoderConfig) -> bool:
    return encoder.embedding_size != encoder.hidden_size
