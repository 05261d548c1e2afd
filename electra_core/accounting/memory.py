"""Memory of training."""

from __future__ import annotations

from dataclasses import dataclass

from electra_core.accounting.masked_positions import max_masked_positions
from electra_core.accounting.parameters import parameter_counts
from electra_core.config import ELECTRA, EncoderConfig, MaskingConfig, ModelConfig, ObjectiveConfig
from electra_core.parts import generator_encoder, network_parts

_FLOAT_BYTES = 4


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


def training_memory_bytes(
    model: ModelConfig,
    masking: MaskingConfig,
    vocab_size: int,
    sequence_length: int,
    rows: int,
    objective: ObjectiveConfig = ELECTRA,
) -> MemoryBytes:
    """Memory of one float32 worker that computes `rows` rows at a time; workers each hold all of it.

    Weights, gradients: 4 bytes a parameter; Adam's two moments: 8 (Muon keeps one for its matrices). Activations, kept
    for the backward pass, in floats: per token and layer 9h + 2f (input, query-key-value, scaled query, context, two
    LayerNorm inputs, one LayerNorm output; feed-forward before and after GELU) and A · L attention probabilities; per
    position whose logits are made three rows as wide as the vocabulary (log-probabilities, sampling weights, gradient),
    two for a head that is not sampled from. Dropout adds a byte for each element it sees and a second copy of the
    probabilities. `two_stage` is reckoned as if both its networks were trained at once. An estimate: allocators round
    up, and autocast to bf16 keeps less. While a checkpoint is written, one worker holds a copy of weights and moments
    in host memory besides.
    """
    parts = network_parts(objective)
    parameter_bytes = _FLOAT_BYTES * parameter_counts(model, vocab_size, objective).total
    generator, discriminator = generator_encoder(model, objective, vocab_size), model.discriminator(vocab_size)
    tokens = rows * sequence_length
    masked = rows * max_masked_positions(masking, sequence_length)
    encoders = [discriminator] + [generator] * (parts.generator + 2 * parts.cloze_towers)
    activations = sum(tokens * _layers(encoder, sequence_length) for encoder in encoders)
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


def _layers(encoder: EncoderConfig, sequence_length: int) -> int:
    """Bytes that all layers of an encoder keep per token."""
    hidden, scores = encoder.hidden_size, encoder.num_attention_heads * sequence_length
    layer = _FLOAT_BYTES * (9 * hidden + 2 * encoder.intermediate_size + scores)
    if encoder.hidden_dropout_prob > 0:
        layer += 2 * hidden
    if encoder.attention_probs_dropout_prob > 0:
        layer += scores * (1 + _FLOAT_BYTES)
    return encoder.num_hidden_layers * layer
