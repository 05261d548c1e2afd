"""What a pretraining job will cost, reckoned from its spec alone, before anything is started."""

from __future__ import annotations

import itertools
from typing import Any

from electra_core.accounting import parameter_counts, training_flops_per_token, training_memory_bytes
from pipelines.specs.advice import spec_warnings
from pipelines.specs.corpus import WordPieceSpec
from pipelines.specs.curriculum import Stage
from pipelines.specs.document import Document
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
    """Of the last step, where a curriculum or the objective has stages, as `flops_per_step`."""
    total_tokens: int
    flops_per_step: float
    """Forward and backward of all networks: 2 per multiply-add, backward twice the forward, look-ups free."""
    total_flops: float
    memory_bytes_per_worker: int
    """Estimate: weights, gradients, Adam's moments and activations of one worker."""
    num_cpus: float
    num_gpus: int
    corpus_bytes: int | None = None
    """Text in the sources, where it could be told without reading them through: compressed files are taken to be all as
    compressible as the beginnings of some, and 2.6 times their size where they are not on this machine. Parquet counts
    as it is stored."""
    estimated_corpus_passes: float | None = None
    """Times the training reads the corpus, at 4.5 bytes a token."""
    warnings: tuple[str, ...] = ()
    """Choices that are allowed and do not do what they seem to."""


def assumed_vocab_size(spec: PretrainSpec) -> int:
    """Ids of the tokenizer before there is one."""
    return spec.tokenizer.vocab_size if isinstance(spec.tokenizer, WordPieceSpec) else BERT_VOCAB_SIZE


def flops_until(spec: PretrainSpec, vocab_size: int, step: int) -> float:
    """Floating-point operations of the first `step` steps, over all workers, whatever the shapes of the curriculum's
    stages and the networks that the objective's train.
    """
    steps = spec.training.num_train_steps
    starts = spec.objective.stage_starts(steps)
    total = 0.0
    for shape in spec.training.stages:
        for number, (start, end) in enumerate(itertools.pairwise((*starts, steps))):
            num_steps = shape.steps_until(min(step, end)) - shape.steps_until(min(step, start))
            total += num_steps * _flops_per_step(spec, vocab_size, shape, number)
    return total


def _flops_per_step(spec: PretrainSpec, vocab_size: int, shape: Stage, stage: int) -> float:
    flops = training_flops_per_token(spec.model, spec.masking, vocab_size, shape.sequence_length, spec.objective, stage)
    return shape.tokens_per_step * float(flops.total)


def plan_job(spec: PretrainSpec, corpus_bytes: int | None = None, vocab_size: int | None = None) -> JobPlan:
    """Reckon parameters, FLOPs and memory of a spec.

    Args:
        spec: the resolved spec.
        corpus_bytes: text in the sources, where it is known.
        vocab_size: ids of the tokenizer, once it is known; until then what the spec asks for.
    """
    if vocab_size is None:
        vocab_size = assumed_vocab_size(spec)
    training = spec.training
    parameters = parameter_counts(spec.model, vocab_size, spec.objective)
    steps = training.num_train_steps
    total_tokens = training.tokens_until(steps)
    parts = spec.compute.num_workers * training.gradient_accumulation_steps
    return JobPlan(
        spec=spec.model_dump(mode="json"),
        discriminator_parameters=parameters.discriminator_exported,
        generator_parameters=parameters.generator_exported,
        trainable_parameters=parameters.total,
        vocab_size=vocab_size,
        tokens_per_step=spec.tokens_per_step,
        total_tokens=total_tokens,
        flops_per_step=_flops_per_step(
            spec, vocab_size, training.stages[-1], spec.objective.stage_at(steps - 1, steps)
        ),
        total_flops=flops_until(spec, vocab_size, steps),
        memory_bytes_per_worker=max(
            training_memory_bytes(
                spec.model,
                spec.masking,
                vocab_size,
                stage.sequence_length,
                rows=stage.global_batch_size // parts,
                objective=spec.objective,
            ).total
            for stage in training.stages
        ),
        num_cpus=spec.compute.num_cpus,
        num_gpus=spec.compute.num_gpus,
        corpus_bytes=corpus_bytes,
        estimated_corpus_passes=None if not corpus_bytes else total_tokens * BYTES_PER_TOKEN / corpus_bytes,
        warnings=spec_warnings(spec),
    )
