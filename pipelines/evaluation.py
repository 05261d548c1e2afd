"""The evaluate stage: the final checkpoint scored on held-out text, exported, and shown on one sentence."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from electra_core.batches import SpecialTokens
from electra_core.parts import exported_networks
from electra_core.pretraining import ElectraForPretraining
from pipelines import storage
from pipelines.errors import CheckpointError
from pipelines.export import export_networks
from pipelines.joblogs.context import current_context, kept_call
from pipelines.record.card import model_card
from pipelines.rows.loader import ValidationRows
from pipelines.specs.documents import ExampleToken
from pipelines.specs.plan import plan_job
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.tokenizer import load_tokenizer
from pipelines.training.batches import HeldOutBatches
from pipelines.training.checkpoint import list_checkpoints, read_state
from pipelines.training.evaluate import evaluate
from pipelines.training.task import TrainingTask, build_networks
from pipelines.training.workers import Worker, choose_cpu_kernels, limit_threads

EVALUATION_TIMEOUT_SECONDS = 6 * 3600
EXAMPLE_CANDIDATES = 64
"""Held-out rows among which the shown one is chosen."""
EXAMPLE_TOKENS = 48


@dataclass(frozen=True)
class Evaluated:
    """What the stage leaves behind."""

    checkpoint_sha256: str
    figures: dict[str, float]
    baselines: dict[str, float]
    example: tuple[ExampleToken, ...]
    exports: dict[str, str]
    """Network to the URI of its folder."""

    def to_document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "checkpoint_sha256": self.checkpoint_sha256,
            "figures": self.figures,
            "baselines": self.baselines,
            "example": [token.model_dump() for token in self.example],
            "exports": self.exports,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Evaluated:
        """From JSON."""
        return cls(
            checkpoint_sha256=document["checkpoint_sha256"],
            figures=document["figures"],
            baselines=document["baselines"],
            example=tuple(ExampleToken.model_validate(token) for token in document["example"]),
            exports=document["exports"],
        )


def evaluate_on_cluster(task: TrainingTask, job_uri: str, job_id: str) -> Evaluated:
    """`evaluate_and_export` where a training worker ran: the driver may have no GPU.

    Raises:
        PipelineError: see `evaluate_and_export`.
        ray.exceptions.GetTimeoutError: it took hours.
    """
    compute = task.spec.compute
    remote: Any = ray.remote(num_cpus=compute.cpus_per_worker, num_gpus=compute.gpus_per_worker, max_retries=3)(
        kept_call
    )
    call = remote.options(name="evaluate").remote(current_context(), "evaluate", _evaluate, (task, job_uri, job_id))
    evaluated: Evaluated = ray.get(call, timeout=EVALUATION_TIMEOUT_SECONDS)
    return evaluated


def _evaluate(argument: tuple[TrainingTask, str, str]) -> Evaluated:
    return evaluate_and_export(*argument)


def evaluate_and_export(task: TrainingTask, job_uri: str, job_id: str) -> Evaluated:
    """Score, export and show the newest checkpoint; returns at once if this checkpoint was done before.

    Raises:
        CheckpointError: there is none.
    """
    checkpoints = list_checkpoints(task.checkpoints_uri)
    if not checkpoints:
        raise CheckpointError(f"{task.checkpoints_uri} must hold a checkpoint, got none")
    final = checkpoints[-1]
    document_uri = storage.join(job_uri, "evaluation.json")
    if storage.exists(document_uri):
        done = Evaluated.from_document(storage.read_json(document_uri))
        if done.checkpoint_sha256 == final.sha256:
            return done

    limit_threads(task.spec.compute)
    choose_cpu_kernels()
    device = torch.device("cuda" if task.spec.compute.gpus_per_worker else "cpu")
    worker = Worker(device=device)
    networks = build_networks(task.spec, task.corpus)
    networks.load_state_dict(read_state(final)["networks"])
    spec = task.spec
    networks.enter_stage(spec.objective.stage_at(final.step - 1, spec.training.num_train_steps), is_start=False)
    networks.to(device)
    rows = ValidationRows(task.corpus, task.spec.training.sequence_length, task.spec.evaluation.max_rows)
    held_out = evaluate(networks, rows, task, worker)
    example = mark_example(networks, rows, task, worker)

    plan = plan_job(task.spec, vocab_size=task.corpus.vocab_size)
    cards = {
        network: model_card(network, job_id, task.spec, plan, task.corpus, held_out.figures, held_out.baselines)
        for network in exported_networks(task.spec.objective)
    }
    exports_uri = storage.join(job_uri, "exports")
    with tempfile.TemporaryDirectory() as scratch:
        # Weights from elsewhere may know longer rows than this job has.
        is_new = spec.initialization is None
        longest_row = spec.longest_row if is_new else spec.model.max_position_embeddings
        folders = export_networks(networks, task.corpus, cards, Path(scratch), longest_row)
        for network, folder in folders.items():
            storage.upload_tree(folder, storage.join(exports_uri, network))
    evaluated = Evaluated(
        final.sha256,
        held_out.figures,
        held_out.baselines,
        example,
        {network: storage.join(exports_uri, network) for network in folders},
    )
    storage.write_json(document_uri, evaluated.to_document())
    return evaluated


@torch.no_grad()
def mark_example(
    networks: ElectraForPretraining, rows: ValidationRows, task: TrainingTask, worker: Worker
) -> tuple[ExampleToken, ...]:
    """One held-out passage with its replaced tokens, and what the discriminator thinks of each token; none without one.

    Of the first `EXAMPLE_CANDIDATES` rows the one it does best on: a look at what it can do; how well it does on all
    of them, the figures say.
    """
    networks.eval()
    indices = np.arange(min(EXAMPLE_CANDIDATES, rows.num_rows))
    masked, draws = HeldOutBatches(rows, task, worker).of(indices)
    detection = networks(masked, draws).detection
    if detection is None:
        return ()
    tokenizer = load_tokenizer(task.corpus.tokenizer_uri)
    special = SpecialTokens(*task.corpus.special)
    probabilities = detection.logits.sigmoid()
    shown = slice(0, EXAMPLE_TOKENS)
    best = int(_separation(probabilities[:, shown], detection.is_replaced[:, shown]).argmax())
    tokens = zip(
        detection.corrupted_ids[best, shown].tolist(),
        masked.original_ids[best, shown].tolist(),
        probabilities[best, shown].tolist(),
        strict=True,
    )
    return tuple(
        ExampleToken(
            token=tokenizer.id_to_token(seen) or "",
            original=tokenizer.id_to_token(original) or "",
            replaced_probability=probability,
        )
        for seen, original, probability in tokens
        if original not in (special.cls_id, special.sep_id, special.pad_id)
    )


def _separation(probabilities: torch.Tensor, is_replaced: torch.Tensor) -> torch.Tensor:
    """Per row float[B]: tokens rightly called replaced, less those wrongly called so; P(replaced) breaks ties."""
    signs = torch.where(is_replaced, 1.0, -1.0)
    marked = (signs * (probabilities > 0.5)).sum(dim=1)
    return marked + (signs * probabilities).mean(dim=1)


def describe_corpus(corpus: PreparedCorpus) -> dict[str, int | float | str]:
    """Size and digest of what was trained on, for the result."""
    return {
        "digest": corpus.digest,
        "uri": corpus.uri,
        "was_found": int(corpus.was_found),
        "num_train_documents": corpus.num_train_documents,
        "num_validation_documents": corpus.num_validation_documents,
        "num_train_tokens": corpus.num_train_tokens,
        "num_validation_tokens": corpus.num_validation_tokens,
        "num_bytes": corpus.num_bytes,
        "vocab_size": corpus.vocab_size,
    }
