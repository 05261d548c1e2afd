"""A search on the small corpus of `training_task`: trials of a second each, for tests with and without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training_task import write_corpus

from pipelines.searching.rungs import rung_shares
from pipelines.searching.train_trial import train_until
from pipelines.searching.trial import SearchContext, Trial
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.search import SearchSpec
from pipelines.specs.trials import trial_spec

BASE: dict[str, Any] = {
    "preset": "tiny",
    "model": {
        "hidden_size": 32,
        "embedding_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "generator_size_ratio": 0.5,
        "max_position_embeddings": 32,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    },
    "optimizer": {"name": "electra_adam", "warmup_steps": 5},
    "training": {
        "num_train_steps": 20,
        "sequence_length": 32,
        "global_batch_size": 8,
        "log_interval_steps": 2,
        "checkpoint_interval_steps": 1000,
    },
    "evaluation": {"max_rows": 40},
    "compute": {"num_workers": 1, "cpus_per_worker": 1},
}
WEIGHT = "objective.discriminator_weight"


def search_context(folder: Path, **fields: Any) -> SearchContext:
    """Of a search in `folder`, with its corpus there; `fields` are the spec's beside kind, base and space."""
    (folder / "corpus").mkdir(exist_ok=True)
    corpus = write_corpus(folder / "corpus")
    space = {WEIGHT: {"type": "log_uniform", "low": 1, "high": 100}}
    spec = resolve_spec({"kind": "search", "base": BASE, "space": space, **fields})
    assert isinstance(spec, SearchSpec)
    base = trial_spec(spec, {}, corpus.vocab_size)
    uri = str(folder / "jobs" / "search-1")
    return SearchContext(spec, base, corpus, None, uri, rung_shares(spec.scheduler))


def rung_context(folder: Path, **fields: Any) -> SearchContext:
    """Of trials of 20 steps that are scored at 5, 10 and 20."""
    given = {
        "objective": {"type": "fixed_corruption", "reference_fraction": 0.5},
        "budget": {"steps": 20},
        "scheduler": {"type": "asha", "min_fraction": 0.25, "reduction_factor": 2},
    }
    return search_context(folder, **{**given, **fields})


def trained(trial: Trial, context: SearchContext, step: int = 20) -> Trial:
    """The trial, after so many steps."""
    train_until(trial.task, step, trial.uri, context.job_uri)
    return trial
