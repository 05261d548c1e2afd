"""The demand of a job, from its resolved spec. Pure."""

from __future__ import annotations

import json
from functools import lru_cache

from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.jobs import JobSpec
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.plans import named_tasks
from pipelines.specs.search import SearchSpec
from pipelines.specs.trials import base_spec
from service.queueing.demand import Demand


def demand_of(spec: JobSpec) -> Demand:
    """Of a spec. A probe is not in it: it runs beside training where the cluster has room, else afterwards."""
    if isinstance(spec, SearchSpec):
        trial = base_spec(spec).compute
        num_final = 0 if spec.final is None else (spec.final.num_best + 1) * len(spec.final.seeds)
        if spec.final is not None and spec.final.is_study:
            num_final = spec.most_trials * len(spec.final.seeds)
        num_trials = min(spec.compute.max_concurrent_trials, max(spec.most_trials, num_final))
        return Demand(
            num_workers=num_trials * trial.num_workers,
            cpus_per_worker=trial.cpus_per_worker,
            gpus_per_worker=trial.gpus_per_worker,
            group_workers=trial.num_workers,
        )
    workers = spec.compute.num_workers
    if isinstance(spec, FinetuneSpec):
        workers = min(workers, len(named_tasks(spec)) * len(spec.training.seeds))
    return Demand(
        num_workers=workers,
        cpus_per_worker=spec.compute.cpus_per_worker,
        gpus_per_worker=spec.compute.gpus_per_worker,
        group_workers=workers,
    )


@lru_cache(maxsize=4096)
def demand_of_json(spec_json: str) -> Demand:
    """Of a stored spec, for a job that was taken before demands were stored. One whose spec is no longer understood
    counts as one CPU: it fails as soon as it starts, and says why.
    """
    try:
        return demand_of(resolve_spec(json.loads(spec_json)))
    except ValueError:
        return Demand()
