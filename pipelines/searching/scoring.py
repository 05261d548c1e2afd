"""What a trial's networks are worth at a rung, by the measure of the search."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from electra_core.batches import SpecialTokens
from electra_core.conversion.single import single_network
from electra_core.conversion.to_transformers import discriminator_state_dict
from electra_core.pretraining import ElectraForPretraining
from electra_core.scoring.networks import Discriminator
from pipelines import storage
from pipelines.errors import NonFiniteLossError, PipelineError
from pipelines.finetuning.copy_network import copy_network
from pipelines.finetuning.run_seed import run_seed
from pipelines.finetuning.seed_task import SeedResult, SeedTask
from pipelines.finetuning.summarise import mean_score, summarise
from pipelines.finetuning.watch import RunsWatch
from pipelines.resources import run_side_by_side
from pipelines.rows.loader import ValidationRows
from pipelines.scoring.pairs import pairs_tokenizer, read_pairs, score_read
from pipelines.searching.corruption import score_on_corruption
from pipelines.searching.host import one_worker_of
from pipelines.searching.measures import (
    CorruptionMeasure,
    Measure,
    PairsMeasure,
    ProbeMeasure,
    TrainingMeasure,
)
from pipelines.searching.train_trial import device_of, networks_at
from pipelines.searching.trial import PROBE_FOLDER, Trial
from pipelines.training.curve import ALIVE_SECONDS, say_alive
from pipelines.training.evaluate import evaluate
from pipelines.training.workers import Worker, choose_cpu_kernels, limit_threads


@dataclass(frozen=True)
class Score:
    """One number, and what it was made of."""

    value: float
    figures: Mapping[str, float]


@dataclass(frozen=True)
class _ScoreTask:
    measure: Measure
    trial: Trial
    step: int


def score_trial(measure: Measure, trial: Trial, step: int) -> Score:
    """Score the checkpoint of a step: here, where the trial has one worker, else in the place of one of its workers.

    Raises:
        NonFiniteLossError: its weights, or what they say, are not finite.
        PipelineError: the networks have no such figure at this step, or see what the measure reads and runs.
    """
    say_alive(trial.uri, f"scoring step {step}")
    compute = trial.spec.compute
    if compute.num_workers == 1 or isinstance(measure, ProbeMeasure):
        return _score(_ScoreTask(measure, trial, step))
    task = _ScoreTask(measure, trial, step)
    ((_, score),) = run_side_by_side(_score_there, [task], one_worker_of(compute), lambda _: None)
    return score


def _score_there(task: _ScoreTask) -> Score:
    # Who waits for this says that it waits, in which silence is no fault.
    say_alive(task.trial.uri, f"scoring step {task.step} in a worker's place")
    limit_threads(task.trial.spec.compute)
    choose_cpu_kernels()
    return _score(task)


def _score(task: _ScoreTask) -> Score:
    measure, trial, step = task.measure, task.trial, task.step
    networks = networks_at(trial.task, step)
    ruined = next((name for name, one in networks.named_parameters() if not one.isfinite().all()), None)
    if ruined is not None:  # by the last update, which no loss has seen
        raise NonFiniteLossError(step, f"the weights must be finite, and those of {ruined} are not after step {step}")
    match measure:
        case ProbeMeasure():
            return _probe(measure, trial, networks, step)
        case PairsMeasure():
            return _pairs(measure, trial, networks)
        case CorruptionMeasure(uri=uri, metric=metric):
            device = device_of(trial.spec)
            figures = score_on_corruption(_discriminator(networks).to(device), uri, device, step)
            return Score(figures[metric], figures)
        case TrainingMeasure(metric=metric):
            return _held_out(metric, trial, networks, step)


def _probe(measure: ProbeMeasure, trial: Trial, networks: ElectraForPretraining, step: int) -> Score:
    """Finetune with every seed: here, where the trial has one worker, else beside each other.

    Raises:
        TimeoutError: one beside others began and then said nothing for an hour.
    """
    folder = storage.join(trial.uri, PROBE_FOLDER, f"step_{step:08d}")
    _begin_discriminator(networks)
    base = copy_network(networks, folder, trial.task.corpus.special, f"{trial.folder} at step {step}")
    compute = trial.spec.compute
    runs = [
        SeedTask(task, base, measure.training, compute, seed, storage.join(folder, task.name, str(seed)))
        for task in measure.tasks
        for seed in measure.training.seeds
    ]
    results: dict[int, SeedResult] = {}
    if compute.num_workers == 1:
        for place, run in enumerate(runs):
            results[place] = run_seed(run, on_progress=_saying(trial, f"finetuning on {run.name} at step {step}"))
    else:
        watch = RunsWatch(runs, results)
        results.update(run_side_by_side(run_seed, runs, compute, lambda _: watch.look()))
    summaries = [
        summarise(task, [results[place] for place, run in enumerate(runs) if run.prepared.name == task.name])
        for task in measure.tasks
    ]
    storage.delete_tree(folder)  # of what was finetuned the scores are wanted, and stand in the rung's result
    figures = {
        f"{one.scores.task}/{name}": value for one in summaries for name, value in one.scores.figures.items()
    } | {
        f"{one.scores.task}/std": one.scores.spread["std"]
        for one in summaries
        if "std" in one.scores.spread and math.isfinite(one.scores.spread["std"])
    }
    return Score(mean_score(summaries), figures)


def _begin_discriminator(networks: ElectraForPretraining) -> None:
    """In the first of two stages the encoder so far is the generator, from whose weights the discriminator will start:
    as it stands it was never trained.
    """
    if networks.objective_config.name == "two_stage" and networks.stage == 0:
        networks.enter_stage(1, is_start=True)


def _saying(trial: Trial, doing: str) -> Callable[[], None]:
    """Say it now, and what says it again where it is time: a task may take hours, and silence is a fault."""
    say_alive(trial.uri, doing)
    said_at = time.monotonic()

    def say() -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= ALIVE_SECONDS:
            said_at = time.monotonic()
            say_alive(trial.uri, doing)

    return say


def _pairs(measure: PairsMeasure, trial: Trial, networks: ElectraForPretraining) -> Score:
    device, corpus = device_of(trial.spec), trial.task.corpus
    discriminator = _discriminator(networks).to(device)
    tokenizer = pairs_tokenizer(corpus.tokenizer_uri)
    longest = networks.discriminator.config.max_position_embeddings
    accuracies = []
    for uri in measure.files:
        read = read_pairs(uri, measure.spec, tokenizer, longest)
        counts, _ = score_read(discriminator, read, SpecialTokens(*corpus.special), device)
        accuracies.append(counts.accuracy)
    mean = sum(accuracies) / len(accuracies)
    return Score(mean, {"accuracy": mean, "worst_file": min(accuracies), "best_file": max(accuracies)})


def _held_out(metric: str, trial: Trial, networks: ElectraForPretraining, step: int) -> Score:
    spec, corpus = trial.spec, trial.task.corpus
    rows = ValidationRows(corpus, spec.training.sequence_length, spec.evaluation.max_rows)
    worker = Worker(device=device_of(spec))
    figures = evaluate(networks.to(worker.device), rows, trial.task, worker).figures
    if metric not in figures:  # which no second try would change
        raise PipelineError(
            f"objective.metric must be a held-out figure of objective.name {spec.objective.name!r} at step {step}, one "
            f"of {', '.join(figures)}, got {metric!r}"
        )
    return Score(figures[metric], figures)


def _discriminator(networks: ElectraForPretraining) -> Discriminator:
    """The main network alone, in eval mode."""
    discriminator = Discriminator(networks.discriminator.config)
    discriminator.load_state_dict(single_network(discriminator, discriminator_state_dict(networks)).state)
    return discriminator.eval()
