"""What a pretraining job will cost, reckoned from its spec alone, before anything is started."""

from __future__ import annotations

from typing import Any

from electra_core.accounting import parameter_counts, training_flops_until, training_memory_bytes
from pipelines.specs.corpus import WordPieceSpec
from pipelines.specs.documents import Document
from pipelines.specs.pretrain import PretrainSpec

BERT_VOCAB_SIZE = 30_522
"""Assumed for a given vocabulary, which is not read here."""
BYTES_PER_TOKEN = 4.5
"""UTF-8 bytes of English per WordPiece token, roughly: 4.2 with 4 096 entries, 4.8 with 30 522."""


class JobPlan(Document):
    """The resolved spec and its price."""

    spec: dict[str, Any]
    """Every field, defaults and preset filled in."""
    discriminator_parameters: int
    """What finetuning starts from: embeddings and encoder."""
    generator_parameters: int
    """As exported: embeddings, encoder and head; 0 where no generator is."""
    trainable_parameters: int
    """All networks, what they share counted once."""
    vocab_size: int
    """Upper bound: a small corpus can give fewer entries."""
    tokens_per_step: int
    total_tokens: int
    flops_per_step: float
    """Forward and backward of all networks, the mean over the steps: 2 per multiply-add, backward twice the forward,
    look-ups free."""
    total_flops: float
    memory_bytes_per_worker: int
    """Estimate: weights, gradients, Adam's moments and activations of one worker."""
    num_cpus: float
    num_gpus: int
    corpus_bytes: int | None = None
    """Size of the sources as stored, where it could be told without reading them."""
    estimated_corpus_passes: float | None = None
    """Times the training reads the corpus, at 4.5 bytes a token and no compression."""


def plan_job(spec: PretrainSpec, corpus_bytes: int | None = None, vocab_size: int | None = None) -> JobPlan:
    """Reckon parameters, FLOPs and memory of a spec.

    Args:
        spec: the resolved spec.
        corpus_bytes: size of the sources, where it is known.
        vocab_size: ids of the tokenizer, once it is known; until then what the spec asks for.
    """
    if vocab_size is None and isinstance(spec.tokenizer, WordPieceSpec):
        vocab_size = spec.tokenizer.vocab_size
    elif vocab_size is None:
        vocab_size = BERT_VOCAB_SIZE
    training = spec.training
    parameters = parameter_counts(spec.model, vocab_size, spec.objective)
    steps = training.num_train_steps
    total_flops = spec.tokens_per_step * training_flops_until(
        steps, steps, spec.model, spec.masking, vocab_size, training.sequence_length, spec.objective
    )
    total_tokens = spec.tokens_per_step * training.num_train_steps
    return JobPlan(
        spec=spec.model_dump(mode="json"),
        discriminator_parameters=parameters.discriminator_exported,
        generator_parameters=parameters.generator_exported,
        trainable_parameters=parameters.total,
        vocab_size=vocab_size,
        tokens_per_step=spec.tokens_per_step,
        total_tokens=total_tokens,
        flops_per_step=total_flops / steps,
        total_flops=total_flops,
        memory_bytes_per_worker=training_memory_bytes(
            spec.model,
            spec.masking,
            vocab_size,
            training.sequence_length,
            rows=training.global_batch_size // (spec.compute.num_workers * training.gradient_accumulation_steps),
            objective=spec.objective,
        ).total,
        num_cpus=spec.compute.num_cpus,
        num_gpus=spec.compute.num_gpus,
        corpus_bytes=corpus_bytes,
        estimated_corpus_passes=None if not corpus_bytes else total_tokens * BYTES_PER_TOKEN / corpus_bytes,
    )
