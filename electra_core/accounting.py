"""What a model costs: parameters, arithmetic, memory. Plain arithmetic without torch: the service can quote it."""

from __future__ import annotations

from dataclasses import dataclass

from electra_core.config import EncoderConfig, MaskingConfig, ModelConfig, ObjectiveConfig
from electra_core.parts import cloze_head_encoder, generator_encoder, network_parts

_ELECTRA = ObjectiveConfig()

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
    """Shared, unless the generator has its own: word (with the rows that pad the vocabulary), position, token type,
    LayerNorm."""
    generator_embeddings: int
    """The generator's own, in `two_stage`; else 0."""
    generator: int
    """Encoder without embeddings, or Electric's two towers; 0 where the objective trains no generator."""
    discriminator: int
    """The main network's encoder without embeddings."""
    generator_head: int
    """Without the tied word embeddings; its bias is padded as they are."""
    discriminator_head: int
    """Every head on the main network: detection, language model, or both."""
    baseline: int
    """What predicts an adversarial generator's reward."""
    discriminator_exported: int
    """What finetuning starts from: embeddings without padding rows, and the main network without its head."""
    generator_exported: int
    """Embeddings, encoder and head of the generator; 0 where none is exported."""

    @property
    def total(self) -> int:
        """Everything pretraining trains."""
        networks = self.embeddings + self.generator_embeddings + self.generator + self.discriminator
        return networks + self.generator_head + self.discriminator_head + self.baseline


@dataclass(frozen=True, slots=True)
class Flops:
    """Floating-point operations of training per token of input."""

    generator: float
    """Encoder, or both towers."""
    discriminator: float
    """The main network's encoder."""
    heads: float
    """All heads."""

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


def parameter_counts(model: ModelConfig, vocab_size: int, objective: ObjectiveConfig = _ELECTRA) -> ParameterCounts:
    """Parameters of the networks an objective is made of, for a tokenizer of `vocab_size` ids."""
    parts = network_parts(objective)
    generator, discriminator = generator_encoder(model, objective, vocab_size), model.discriminator(vocab_size)
    embedding, hidden = model.embedding_size, model.hidden_size
    tables = discriminator.max_position_embeddings + discriminator.type_vocab_size + 2  # 2: LayerNorm
    embeddings = (discriminator.padded_vocab_size + tables) * embedding
    main, one = _encoder_parameters(discriminator), _encoder_parameters(generator)
    of_generator = one * parts.generator + 2 * one * parts.cloze_towers
    head_of_generator = _language_head_parameters(generator) * parts.generator
    if parts.cloze_towers:
        head_of_generator = _language_head_parameters(cloze_head_encoder(generator))
    return ParameterCounts(
        embeddings=embeddings,
        generator_embeddings=embeddings * parts.generator_embeddings,
        generator=of_generator,
        discriminator=main,
        generator_head=head_of_generator,
        discriminator_head=(_linear(hidden, hidden) + _linear(hidden, 1)) * parts.detection_head
        + _language_head_parameters(discriminator) * parts.language_head,
        baseline=generator.hidden_size * parts.baseline,
        discriminator_exported=(vocab_size + tables) * embedding + main,
        generator_exported=(embeddings + of_generator + head_of_generator) * parts.generator,
    )


def training_flops_per_token(
    model: ModelConfig,
    masking: MaskingConfig,
    vocab_size: int,
    sequence_length: int,
    objective: ObjectiveConfig = _ELECTRA,
    stage: int = 0,
) -> Flops:
    """Arithmetic of one training step per token.

    A multiply-add counts 2, the backward pass twice the forward pass, and only products of matrices count: a look-up in
    the embeddings, a draw from a fixed distribution and the dot product of an adversarial generator's baseline are
    free. A network that is frozen or does not run in a stage costs its forward pass or nothing. The generator's head
    runs at N positions of each row, Electric's cloze head at all; the main network's language-model head at N
    positions, or at all for All-Tokens MLM; its detection head at all, also where only some are asked about. A layer
    costs 24h² + 4Lh where the feed-forward layer is 4h wide: 8h² for the four projections, 4Lh for attention (causal
    attention counted whole, as it is computed), 4hf for the feed-forward layer. G's own script (1.29e18 for Small, here
    1.15e18) and the paper (1.4e18) count otherwise.

    Args:
        model: sizes.
        masking: share of masked positions.
        vocab_size: ids of the tokenizer.
        sequence_length: L.
        objective: decides which networks and heads run, and where.
        stage: of `ObjectiveConfig.stage_at`; only `two_stage` has a second.
    """
    parts = network_parts(objective)
    generator, discriminator = generator_encoder(model, objective, vocab_size), model.discriminator(vocab_size)
    masked_share = max_masked_positions(masking, sequence_length) / sequence_length
    of_generator = head_of_generator = 0.0
    if parts.generator:
        of_generator = _encoder_flops(generator, sequence_length)
        head_of_generator = _language_head_flops(generator) * masked_share
    elif parts.cloze_towers:
        of_generator = 2 * _encoder_flops(generator, sequence_length)
        head_of_generator = _language_head_flops(cloze_head_encoder(generator))
    main = _encoder_flops(discriminator, sequence_length)
    head_of_main = 2.0 * discriminator.hidden_size * (discriminator.hidden_size + 1) * parts.detection_head
    if parts.language_head:
        share = 1.0 if objective.name == "all_tokens_mlm" else masked_share
        head_of_main += _language_head_flops(discriminator) * share
    # How often the forward pass's cost is paid: 3 with a backward pass, 1 without.
    generator_times, main_times = 3.0, 3.0
    if objective.name == "two_stage":
        generator_times, main_times = (3.0, 0.0) if stage == 0 else (1.0, 3.0)
    return Flops(
        generator=generator_times * of_generator,
        discriminator=main_times * main,
        heads=generator_times * head_of_generator + main_times * head_of_main,
    )


def training_flops_until(
    step: int,
    num_train_steps: int,
    model: ModelConfig,
    masking: MaskingConfig,
    vocab_size: int,
    sequence_length: int,
    objective: ObjectiveConfig = _ELECTRA,
) -> float:
    """FLOPs of the first `step` steps of a run, if each had one token: multiply by the tokens of a step."""
    starts = objective.stage_starts(num_train_steps)
    total = 0.0
    for stage, (start, end) in enumerate(zip(starts, (*starts[1:], num_train_steps), strict=True)):
        steps = max(0, min(step, end) - start)
        total += steps * training_flops_per_token(model, masking, vocab_size, sequence_length, objective, stage).total
    return total


def training_memory_bytes(
    model: ModelConfig,
    masking: MaskingConfig,
    vocab_size: int,
    sequence_length: int,
    rows: int,
    objective: ObjectiveConfig = _ELECTRA,
) -> MemoryBytes:
    """Memory of one float32 worker that computes `rows` rows at a time; workers each hold all of it.

    Weights, gradients: 4 bytes a parameter; Adam's two moments: 8. Activations, kept for the backward pass, in floats:
    per token and layer 9h + 2f (input, query-key-value, scaled query, context, two LayerNorm inputs, one LayerNorm
    output; feed-forward before and after GELU) and A · L attention probabilities; per position whose logits are made
    three rows as wide as the vocabulary (log-probabilities, sampling weights, gradient), two for a head that is not
    sampled from. Dropout adds a byte for each element it sees and a second copy of the probabilities. `two_stage` is
    reckoned as if both its networks were trained at once. An estimate: allocators round up, and autocast to bf16 keeps
    less.
    """
    parts = network_parts(objective)
    parameter_bytes = _FLOAT_BYTES * parameter_counts(model, vocab_size, objective).total
    generator, discriminator = generator_encoder(model, objective, vocab_size), model.discriminator(vocab_size)
    tokens = rows * sequence_length
    masked = rows * max_masked_positions(masking, sequence_length)
    encoders = [discriminator] + [generator] * (parts.generator + 2 * parts.cloze_towers)
    activations = sum(tokens * _layer_activation_bytes(e, sequence_length) for e in encoders)
    # Each network's embeddings and LayerNorm.
    activations += len(encoders) * _FLOAT_BYTES * tokens * (2 * model.embedding_size)
    wide_rows = 3 * (masked * parts.generator + tokens * parts.cloze_towers)
    if parts.language_head:
        wide_rows += 2 * (tokens if objective.name == "all_tokens_mlm" else masked)
    activations += _FLOAT_BYTES * wide_rows * discriminator.padded_vocab_size
    return MemoryBytes(
        weights=parameter_bytes,
        gradients=parameter_bytes,
        optimizer_moments=2 * parameter_bytes,
        activations=activations,
    )


def _linear(in_features: int, out_features: int) -> int:
    return in_features * out_features + out_features


def _language_head_parameters(encoder: EncoderConfig) -> int:
    embedding = encoder.embedding_size
    return _linear(encoder.hidden_size, embedding) + 2 * embedding + encoder.padded_vocab_size


def _language_head_flops(encoder: EncoderConfig) -> float:
    """Forward, per position it runs at."""
    embedding = encoder.embedding_size
    return 2.0 * encoder.hidden_size * embedding + 2.0 * embedding * encoder.padded_vocab_size


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
