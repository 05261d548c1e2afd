"""What scores a trial: an objective of the spec with its files read, tokenised or corrupted once for all trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pipelines import storage
from pipelines.resources import run_side_by_side
from pipelines.searching.corruption import CorruptionTask, make_corruption, train_reference
from pipelines.searching.host import host_of, one_worker_of
from pipelines.searching.trial import SearchContext
from pipelines.searching.watch import FolderWatch
from pipelines.specs.comparing import (
    FixedCorruptionObjective,
    MinimalPairsObjective,
    ProbeObjective,
    SearchObjective,
    TrainingMetricObjective,
)
from pipelines.specs.evaluate import MinimalPairsSpec
from pipelines.specs.finetune import BaselineSpec, FinetuneTrainingSpec
from pipelines.tasks.prepare import PreparedTask, TaskPreparation, prepare_task


@dataclass(frozen=True)
class ProbeMeasure:
    """Mean score of tasks, percent."""

    tasks: tuple[PreparedTask, ...]
    training: FinetuneTrainingSpec


@dataclass(frozen=True)
class PairsMeasure:
    """Mean accuracy over files of minimal pairs."""

    spec: MinimalPairsSpec
    files: tuple[str, ...]


@dataclass(frozen=True)
class CorruptionMeasure:
    """A figure of the discriminator on rows that are corrupted already."""

    uri: str
    """Of their `.npz`."""
    metric: Literal["auc", "loss"]


@dataclass(frozen=True)
class TrainingMeasure:
    """A held-out figure of a trial's own networks."""

    metric: str


Measure = ProbeMeasure | PairsMeasure | CorruptionMeasure | TrainingMeasure


def metric_of(objective: SearchObjective) -> tuple[str, Literal["max", "min"]]:
    """What a score is called, and whether more of it is better."""
    match objective:
        case ProbeObjective():
            return "probe_mean", "max"
        case MinimalPairsObjective():
            return "minimal_pairs_accuracy", "max"
        case FixedCorruptionObjective(metric=metric):
            return f"fixed_corruption_{metric}", "max" if metric == "auc" else "min"
        case TrainingMetricObjective(metric=metric):
            return metric, "min" if metric.endswith("loss") else "max"


def prepare_measure(context: SearchContext, storage_uri: str, waiting: Callable[[str], None]) -> Measure:
    """Read what trials are scored on; of a fixed corruption, train the networks that make it.

    Args:
        context: of the search.
        storage_uri: root under which prepared tasks lie.
        waiting: called every second or so with what is being done; what it raises is raised here.

    Raises:
        DataError: files hold no such tasks or pairs.
        StorageError: a file cannot be read.
        TimeoutError: the training of the reference had begun and said nothing for hours.
    """
    objective, corpus, compute = context.search.objective, context.corpus, context.base.compute
    match objective:
        case ProbeObjective():
            length = objective.training.max_sequence_length
            none = BaselineSpec(majority=False, tfidf=False)
            wanted = [
                TaskPreparation(name, task, corpus.tokenizer_uri, task.max_sequence_length or length, storage_uri, none)
                for name, task in objective.tasks.items()
            ]
            done = dict(
                run_side_by_side(prepare_task, wanted, compute.without_gpus(), lambda _: waiting("reading the tasks"))
            )
            return ProbeMeasure(tuple(done[place] for place in range(len(wanted))), objective.training)
        case MinimalPairsObjective():
            found = {file.uri: file for uri in objective.pairs.uris for file in storage.expand(uri)}
            return PairsMeasure(objective.pairs, tuple(found))
        case FixedCorruptionObjective():
            task = CorruptionTask(context)
            looking = _watching(task, waiting, "training the networks that corrupt held-out text")
            for _ in run_side_by_side(train_reference, [task], host_of(compute), looking):
                pass
            looking = _watching(task, waiting, "corrupting held-out text")
            ((_, uri),) = run_side_by_side(make_corruption, [task], one_worker_of(compute), looking)
            return CorruptionMeasure(uri, objective.metric)
        case TrainingMetricObjective(metric=metric):
            return TrainingMeasure(metric)


def _watching(task: CorruptionTask, waiting: Callable[[str], None], doing: str) -> Callable[[int], None]:
    """What is called while the reference is waited for."""
    watch = FolderWatch("the reference", task.uri)

    def look(_: int) -> None:
        waiting(doing)
        watch.look()

    return look
