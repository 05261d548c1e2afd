"""What a job takes of the cluster, and what it has computed: from its spec and its own words. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from pipelines.specs.documents import JobResult, Progress
from pipelines.specs.earlier import as_it_was
from pipelines.specs.jobs import SPECS, JobSpec
from pipelines.specs.plan import assumed_vocab_size, flops_until
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.search import SearchSpec
from service.queueing.reckoning import demand_of


@dataclass(frozen=True)
class Resources:
    """What the workers of a job hold while it runs."""

    num_millicpus: int
    """Thousandths of a CPU: sums of whole numbers are exact."""
    num_gpus: int


@dataclass(frozen=True)
class Work:
    """What a job has computed so far."""

    tokens: int = 0
    """Trained on, in pretraining."""
    flops: float = 0.0
    """Of pretraining and of searches that are over: those of finetuning and evaluation are not reckoned."""


@lru_cache(maxsize=64)
def read_stored_spec(spec_json: str) -> JobSpec:
    """The spec of a row.

    Raises:
        ValueError: it is none that this version knows.
    """
    document = json.loads(spec_json)
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in SPECS:
        raise ValueError(f"kind must be one of {', '.join(SPECS)}, got {kind!r}")
    return SPECS[kind].model_validate_json(json.dumps(as_it_was(document)))


def resources_of(spec_json: str) -> Resources:
    """What the workers hold, as the queue reckons it: of a search those of as many trials as may run side by side, of
    finetuning no more than there are seeds to run.

    Raises:
        ValueError: the spec is none that this version knows.
    """
    demand = demand_of(read_stored_spec(spec_json))
    return Resources(round(1000 * demand.num_cpus), demand.num_gpus)


def work_of(spec_json: str, progress: Progress | None, result: JobResult | None) -> Work:
    """What the job has computed by its own last word, the result before the progress.

    Raises:
        ValueError: the spec is none that this version knows.
    """
    spec = read_stored_spec(spec_json)
    if isinstance(spec, SearchSpec):
        outcome = None if result is None else result.search
        if outcome is None:
            return Work()
        return Work(flops=outcome.flops_trials + outcome.flops_final + outcome.flops_reference)
    if not isinstance(spec, PretrainSpec):
        return Work()
    said = result if result is not None and result.step is not None else progress
    if said is None or not said.step:
        return Work()
    step = min(said.step, spec.training.num_train_steps)
    # What a retry took over was computed by another job, and counts there.
    before = min(said.taken_over_step or 0, step)
    known = None if result is None else result.corpus.get("vocab_size")
    vocab_size = int(known) if isinstance(known, int) else assumed_vocab_size(spec)
    tokens = spec.training.tokens_until(step) - spec.training.tokens_until(before)
    return Work(tokens, flops_until(spec, vocab_size, step) - flops_until(spec, vocab_size, before))
