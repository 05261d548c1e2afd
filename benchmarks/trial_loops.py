"""The trials of a search one after another in one process: with nothing around them, and with all files of ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from pipelines.searching.measures import TrainingMeasure
from pipelines.searching.trial import SearchContext, make_trial
from pipelines.specs.space import Point

METRIC = "generator_loss"


class Times(NamedTuple):
    """What a loop over all trials took."""

    seconds: float
    """By the wall; the start of the process is left out."""
    train_seconds: float
    score_seconds: float
    scores: tuple[float, ...]
    """Of the trials, in order: contenders that compute different things have others."""


def run_loop(context: SearchContext, points: Sequence[Point], *, with_files: bool) -> Times:
    """Train and score every point, in a process that does nothing else.

    Args:
        context: of a search whose trials are scored at their ends alone.
        points: of its space.
        with_files: whether each trial has its folder with signs of life, curve, checkpoint and score, as in a search.

    Raises:
        NonFiniteLossError: a trial diverged, and would be cheaper than the others.
    """
    from pipelines.training import workers

    workers.limit_threads(context.base.compute)
    workers.choose_cpu_kernels()
    one = _with_files if with_files else _in_memory
    start = time.perf_counter()
    trials = [one(context, point) for point in points]
    seconds = time.perf_counter() - start
    train, score, scores = zip(*trials, strict=True)
    return Times(seconds, sum(train), sum(score), scores)


def _with_files(context: SearchContext, point: Point) -> tuple[float, float, float]:
    from pipelines.errors import NonFiniteLossError
    from pipelines.searching.advance import advance

    trial = make_trial(context, point)
    (result,) = [advance(trial, TrainingMeasure(METRIC), rung, context.job_uri) for rung in range(len(trial.steps))]
    if result.score is None:
        raise NonFiniteLossError(result.step, result.reason)
    return result.train_seconds, result.score_seconds, result.score


def _in_memory(context: SearchContext, point: Point) -> tuple[float, float, float]:
    """The steps of the training loop and the held-out figure, as whoever has no tool would write them down."""
    import math

    from electra_core.optimizer import clip_by_global_norm, make_optimizer, set_learning_rate
    from electra_core.schedule import learning_rate
    from pipelines.errors import NonFiniteLossError
    from pipelines.rows.loader import ValidationRows
    from pipelines.training.batches import Batches
    from pipelines.training.evaluate import evaluate
    from pipelines.training.task import build_networks
    from pipelines.training.workers import Worker

    start = time.perf_counter()
    task, worker = make_trial(context, point).task, Worker()
    spec, num_steps = task.spec, task.spec.training.num_train_steps
    networks = build_networks(spec, task.corpus).train()
    optimizer, parameters = make_optimizer(networks, spec.optimizer), list(networks.parameters())
    batches = Batches(task, worker)
    for step in range(num_steps):
        batch, draws = batches.at(step)
        networks(batch, draws).total(batch.num_masked, batch.num_real).backward()
        clip_by_global_norm(parameters, spec.optimizer.max_grad_norm)
        set_learning_rate(optimizer, learning_rate(step, spec.optimizer, num_steps))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    trained = time.perf_counter()
    rows = ValidationRows(task.corpus, spec.training.sequence_length, spec.evaluation.max_rows)
    score = evaluate(networks, rows, task, worker).figures[METRIC]
    if not math.isfinite(score):
        raise NonFiniteLossError(num_steps)
    return trained - start, time.perf_counter() - trained, score
