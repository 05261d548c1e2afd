"""Floating-point operations of training."""

from __future__ import annotations

from dataclasses import dataclass

from electra_core.accounting.masked_positions import max_masked_positions
from electra_core.config import ELECTRA, EncoderConfig, MaskingConfig, ModelConfig, ObjectiveConfig
from electra_core.parts import cloze_head_encoder, generator_encoder, network_parts


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


def training_flops_per_token(
    model: ModelConfig,
    masking: MaskingConfig,
    vocab_size: int,
    sequence_length: int,
    objective: ObjectiveConfig = ELECTRA,
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
        of_generator = _encoder(generator, sequence_length)
        head_of_generator = _language_head(generator) * masked_share
    elif parts.cloze_towers:
        of_generator = 2.0 * _encoder(generator, sequence_length)
        head_of_generator = _language_head(cloze_head_encoder(generator))
    main = _encoder(discriminator, sequence_length)
    head_of_main = 2.0 * discriminator.hidden_size * (discriminator.hidden_size + 1) * parts.detection_head
    if parts.language_head:
        share = 1.0 if objective.name == "all_tokens_mlm" else masked_share
        head_of_main += _language_head(discriminator) * share
    # How often the forward pass's cost is paid: 3 with a backward pass, 1 without.
    generator_times, main_times = 3.0, 3.0
    if objective.name == "two_stage":
        generator_times, main_times = (3.0, 0.0) if stage == 0 else (1.0, 3.0)
    return Flops(
        generator=generator_times * of_generator,
        discriminator=main_times * main,
        heads=generator_times * head_of_generator + main_times * head_of_main,
    )


def _encoder(encoder: EncoderConfig, sequence_length: int) -> float:
    """Forward, per token."""
    hidden = encoder.hidden_size
    layer = 8.0 * hidden * hidden + 4.0 * hidden * encoder.intermediate_size + 4.0 * sequence_length * hidden
    projection = 2.0 * encoder.embedding_size * hidden if encoder.embedding_size != hidden else 0.0
    return encoder.num_hidden_layers * layer + projection


def _language_head(encoder: EncoderConfig) -> float:
    """Forward, per position it runs at."""
    embedding = encoder.embedding_size
    return 2.0 * encoder.hidden_size * embedding + 2.0 * embedding * encoder.padded_vocab_size
