"""What a job of any kind will cost, reckoned from its spec alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pipelines.specs.advice import finetuning_warnings, search_warnings, spec_warnings
from pipelines.specs.comparing import MinimalPairsObjective, ProbeObjective
from pipelines.specs.corpus import PythonDocsSource
from pipelines.specs.document import Document
from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.finetune import FinetuneSpec, ModelFiles
from pipelines.specs.jobs import JobSpec
from pipelines.specs.model_source import NetworkFiles
from pipelines.specs.plan import JobPlan, assumed_vocab_size, flops_until, plan_job
from pipelines.specs.search import SearchSpec
from pipelines.specs.task import GlueSuite, GlueTask, TaskSpec
from pipelines.specs.trials import check_search, trial_spec


class FinetunePlan(Document):
    """The resolved spec of a finetuning job and its size."""

    kind: Literal["finetune"] = "finetune"
    spec: dict[str, Any]
    """Every field, defaults filled in."""
    tasks: tuple[str, ...]
    """By name; of a suite those that are run if their files are there."""
    num_runs: int
    """Tasks times seeds."""
    num_runs_at_a_time: int
    num_cpus: float
    num_gpus: int
    data_bytes: int | None = None
    """Size of the labelled files as stored, where it could be told without reading them."""
    warnings: tuple[str, ...] = ()
    """Choices that are allowed and do not do what they seem to."""


class EvaluatePlan(Document):
    """The resolved spec of an evaluation job and its size."""

    kind: Literal["evaluate"] = "evaluate"
    spec: dict[str, Any]
    """Every field, defaults filled in."""
    networks: tuple[str, ...]
    num_cpus: float
    num_gpus: int
    data_bytes: int | None = None
    """Size of minimal pairs and text as stored, where it could be told without reading them."""
    warnings: tuple[str, ...] = ()
    """Choices that are allowed and do not do what they seem to."""


class SearchPlan(Document):
    """The resolved spec of a search and its price."""

    kind: Literal["search"] = "search"
    spec: dict[str, Any]
    """Every field, defaults filled in."""
    num_trials: int
    """At most: of a grid all combinations. A study has none but those of its final round."""
    num_trials_at_a_time: int
    base_num_train_steps: int
    """That the budget pays for, of the base."""
    flops_per_trial: float
    """Of one that runs to its end: the base's, where the budget is not in FLOPs."""
    flops_without_stopping: float
    """Of all trials, if none is stopped, and of the final round; without what scoring takes."""
    num_final_trainings: int
    num_cpus: float
    """Of all trials that run side by side, where the cluster has as many."""
    num_gpus: int
    corpus_bytes: int | None = None
    """Text in the sources, as of a pretraining job."""
    num_points_looked_at: int
    num_invalid_points: int
    """Of these: they will be reported and not tried."""
    warnings: tuple[str, ...] = ()
    """Choices that are allowed and do not do what they seem to, and the first invalid points."""


Plan = JobPlan | FinetunePlan | EvaluatePlan | SearchPlan


def plan_any(spec: JobSpec, num_bytes: int | None = None) -> Plan:
    """The plan of a job; `num_bytes` is the size of its text or its labelled files, where that is known."""
    if isinstance(spec, FinetuneSpec):
        return _plan_finetuning(spec, num_bytes)
    if isinstance(spec, EvaluateSpec):
        return EvaluatePlan(
            spec=spec.model_dump(mode="json"),
            networks=tuple(spec.networks),
            num_cpus=spec.compute.num_cpus,
            num_gpus=spec.compute.num_gpus,
            data_bytes=num_bytes,
        )
    if isinstance(spec, SearchSpec):
        return _plan_search(spec, num_bytes)
    return plan_job(spec, corpus_bytes=num_bytes)


def named_tasks(spec: FinetuneSpec) -> dict[str, TaskSpec]:
    """The tasks of a job by name, whether their files are there or not."""
    if spec.task is not None:
        return {spec.task.name if isinstance(spec.task, GlueTask) else spec.name: spec.task}
    assert spec.suite is not None
    if isinstance(spec.suite, GlueSuite):
        root = spec.suite.uri.rstrip("/")
        return {
            name: GlueTask(
                name=name,
                uri=f"{root}/{name}",
                head=spec.suite.head,
                max_train_examples=spec.suite.max_train_examples,
            )
            for name in spec.suite.tasks
        }
    return dict(spec.suite.tasks)


def finetuning_files(spec: FinetuneSpec) -> Iterator[tuple[str, str]]:
    """Files that must be there before the job starts: JSON pointer into the spec, and URI."""
    if isinstance(spec.model, ModelFiles):
        yield "/model/uri", spec.model.uri
        if spec.model.tokenizer_uri is not None:
            yield "/model/tokenizer_uri", spec.model.tokenizer_uri
    if isinstance(spec.suite, GlueSuite):
        yield "/suite/uri", spec.suite.uri  # of its tasks those are left out whose files are not there
        return
    for name, task in named_tasks(spec).items():
        pointer = "/task" if spec.task is not None else f"/suite/tasks/{name}"
        yield from labelled_files(pointer, task)


def evaluation_files(spec: EvaluateSpec) -> Iterator[tuple[str, str]]:
    """Files that must be there before the job starts: JSON pointer into the spec, and URI."""
    for name, network in spec.networks.items():
        if isinstance(network, NetworkFiles):
            yield f"/{name}/uri", network.uri
            if network.tokenizer_uri is not None:
                yield f"/{name}/tokenizer_uri", network.tokenizer_uri
    if spec.minimal_pairs is not None:
        for number, uri in enumerate(spec.minimal_pairs.uris):
            yield f"/minimal_pairs/uris/{number}", uri
    if spec.unseen_text is not None:
        for name, source in spec.unseen_text.sources.items():
            if not isinstance(source, PythonDocsSource):
                for number, uri in enumerate(source.uris):
                    yield f"/unseen_text/sources/{name}/uris/{number}", uri


def search_files(spec: SearchSpec) -> Iterator[tuple[str, str]]:
    """Files of a search's objective that must be there before the job starts: JSON pointer, and URI."""
    if isinstance(spec.objective, ProbeObjective):
        for name, task in spec.objective.tasks.items():
            yield from labelled_files(f"/objective/tasks/{name}", task)
    if isinstance(spec.objective, MinimalPairsObjective):
        for number, uri in enumerate(spec.objective.pairs.uris):
            yield f"/objective/pairs/uris/{number}", uri


def labelled_files(pointer: str, task: TaskSpec) -> Iterator[tuple[str, str]]:
    """Files of one task: JSON pointer below `pointer`, and URI."""
    if isinstance(task, GlueTask):
        yield f"{pointer}/uri", task.uri
        return
    for split in ("train", "validation", "test"):
        for number, uri in enumerate(getattr(task.data, split) or ()):
            yield f"{pointer}/data/{split}/{number}", uri


def _plan_search(spec: SearchSpec, corpus_bytes: int | None) -> SearchPlan:
    base = trial_spec(spec, {})
    report = check_search(spec)
    num_trials = spec.most_trials
    num_final = 0 if spec.final is None else (spec.final.num_best + 1) * len(spec.final.seeds)
    if spec.final is not None and spec.final.is_study:
        num_trials, num_final = 0, num_trials * len(spec.final.seeds)
    flops = flops_until(base, assumed_vocab_size(base), base.training.num_train_steps)
    at_a_time = min(spec.compute.max_concurrent_trials, max(num_trials, num_final))
    return SearchPlan(
        spec=spec.model_dump(mode="json"),
        num_trials=num_trials,
        num_trials_at_a_time=at_a_time,
        base_num_train_steps=base.training.num_train_steps,
        flops_per_trial=flops,
        flops_without_stopping=(num_trials + num_final) * flops,
        num_final_trainings=num_final,
        num_cpus=at_a_time * base.compute.num_cpus,
        num_gpus=at_a_time * base.compute.num_gpus,
        corpus_bytes=corpus_bytes,
        num_points_looked_at=report.num_looked_at,
        num_invalid_points=report.num_invalid,
        warnings=(
            *spec_warnings(base),
            *search_warnings(spec, base, report.flops),
            *(f"cannot be tried: {problem}" for problem in report.problems),
        ),
    )


def _plan_finetuning(spec: FinetuneSpec, data_bytes: int | None) -> FinetunePlan:
    tasks = tuple(named_tasks(spec))
    return FinetunePlan(
        spec=spec.model_dump(mode="json"),
        tasks=tasks,
        num_runs=len(tasks) * len(spec.training.seeds),
        num_runs_at_a_time=min(spec.compute.num_workers, len(tasks) * len(spec.training.seeds)),
        num_cpus=spec.compute.num_cpus,
        num_gpus=spec.compute.num_gpus,
        data_bytes=data_bytes,
        warnings=finetuning_warnings(spec),
    )
