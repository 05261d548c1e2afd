"""Prepared tasks, runs and results by hand: what is reckoned from them needs no files."""

from __future__ import annotations

from typing import Any

from electra_core.config import EncoderConfig
from pipelines.finetuning.base_model import BaseModel
from pipelines.finetuning.seed_task import SeedResult, SeedTask
from pipelines.specs.compute import WorkerSpec
from pipelines.specs.finetune import FinetuneTrainingSpec
from pipelines.specs.task import UserTask
from pipelines.storage.artifacts import SpecialTokenIds
from pipelines.tasks.prepare import PreparedSplit, PreparedTask

SIZES = {"vocab_size": 100, "hidden_size": 64, "embedding_size": 64, "num_attention_heads": 2, "intermediate_size": 64}


def split(name: str, num_examples: int = 10, **fields: Any) -> PreparedSplit:
    """Whole and labelled, unless it is said otherwise."""
    counts = {"num_rows": num_examples, "num_bad_rows": 0, "num_also_in_training": 0, "num_cut": 0}
    return PreparedSplit(name, num_examples, **{**counts, "num_labelled": num_examples, **fields})


def prepared_task(task: UserTask, *others: PreparedSplit, **fields: Any) -> PreparedTask:
    """With a training and a validation split, unless others are named."""
    given = {
        "name": "toy",
        "uri": "nowhere",
        "digest": "0",
        "task": task,
        "glue_name": None,
        "labels": (),
        "label_counts": (),
        "num_choices": 1,
        "num_train_rows": 10,
        "may_have_no_answer": False,
        "splits": others or (split("train"), split("validation")),
        "baselines": {},
        "baseline_notes": (),
    }
    return PreparedTask(**{**given, **fields})


def run_of(prepared: PreparedTask, *, without_pretraining: bool = False, **training: Any) -> SeedTask:
    """One run, of a network with 2 layers."""
    encoder = EncoderConfig.model_validate({**SIZES, "num_hidden_layers": 2, "max_position_embeddings": 64})
    base = BaseModel("nowhere", "0", encoder, SpecialTokenIds(0, 1, 2, 3, 4), "tiny version 7", without_pretraining)
    rules = FinetuneTrainingSpec.model_validate(training)
    return SeedTask(prepared, base, rules, WorkerSpec(), 1, "nowhere")


def result_of(seed: int, scores: dict[str, dict[str, float]]) -> SeedResult:
    """A run that has ended."""
    return SeedResult("0", "toy", seed, 10, scores, (), (), 100.0 * seed, 1.0)
