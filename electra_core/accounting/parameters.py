"""Numbers of parameters."""

from __future__ import annotations

from dataclasses import dataclass

from electra_core.config import ELECTRA, EncoderConfig, ModelConfig, ObjectiveConfig
from electra_core.parts import cloze_head_encoder, generator_encoder, network_parts


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Numbers of trainable parameters."""

    embeddings: int
    """The generator's, or those of all networks: word (with the rows that pad the vocabulary), position, type,
    LayerNorm."""
    discriminator_embeddings: int
    """The main network's own, or its difference from the generator's; 0 where embeddings are shared."""
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
    counted_twice: int
    """The encoder, where both networks are one."""
    discriminator_exported: int
    """What finetuning starts from: embeddings without padding rows, and the main network without its head."""
    generator_exported: int
    """Embeddings, encoder and head of the generator; 0 where none is exported."""

    @property
    def total(self) -> int:
        """Everything pretraining trains."""
        embeddings = self.embeddings + self.discriminator_embeddings
        networks = self.generator + self.discriminator - self.counted_twice
        return embeddings + networks + self.generator_head + self.discriminator_head + self.baseline


def parameter_counts(model: ModelConfig, vocab_size: int, objective: ObjectiveConfig = ELECTRA) -> ParameterCounts:
    """Parameters of the networks an objective is made of, for a tokenizer of `vocab_size` ids."""
    parts = network_parts(objective)
    generator, discriminator = generator_encoder(model, objective, vocab_size), model.discriminator(vocab_size)
    embedding, hidden = model.embedding_size, model.hidden_size
    tables = discriminator.max_position_embeddings + discriminator.type_vocab_size + 2  # 2: LayerNorm
    embeddings = (discriminator.padded_vocab_size + tables) * embedding
    main, tower = _encoder(discriminator), _encoder(generator)
    of_generator = head_of_generator = 0
    if parts.generator:
        of_generator, head_of_generator = tower, _language_head(generator)
    elif parts.cloze_towers:
        of_generator, head_of_generator = 2 * tower, _language_head(cloze_head_encoder(generator))
    detection_head = _linear(hidden, hidden) + _linear(hidden, 1)
    return ParameterCounts(
        embeddings=embeddings,
        discriminator_embeddings=embeddings if model.sharing in ("none", "gdes") else 0,
        generator=of_generator,
        discriminator=main,
        generator_head=head_of_generator,
        discriminator_head=detection_head * parts.detection_head + _language_head(discriminator) * parts.language_head,
        baseline=generator.hidden_size * parts.baseline,
        counted_twice=main if model.sharing == "all" else 0,
        discriminator_exported=(vocab_size + tables) * embedding + main,
        generator_exported=(embeddings + of_generator + head_of_generator) * parts.generator,
    )


def _encoder(encoder: EncoderConfig) -> int:
    """With its projection, without embeddings."""
    hidden, intermediate = encoder.hidden_size, encoder.intermediate_size
    feed_forward = _linear(hidden, intermediate) + _linear(intermediate, hidden)
    layer = 4 * _linear(hidden, hidden) + feed_forward + 4 * hidden  # 4h: two LayerNorms
    projection = _linear(encoder.embedding_size, hidden) if encoder.embedding_size != hidden else 0
    return encoder.num_hidden_layers * layer + projection


def _language_head(encoder: EncoderConfig) -> int:
    embedding = encoder.embedding_size
    return _linear(encoder.hidden_size, embedding) + 2 * embedding + encoder.padded_vocab_size


def _linear(in_features: int, out_features: int) -> int:
    return in_features * out_features + out_features
