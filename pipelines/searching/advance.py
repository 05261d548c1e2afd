"""A trial from one rung to the next: train, score, keep."""

from __future__ import annotations

import time

from pipelines.errors import NonFiniteLossError
from pipelines.searching.measures import Measure
from pipelines.searching.scoring import score_trial
from pipelines.searching.train_trial import Losses, train_until
from pipelines.searching.trial import RungResult, Trial
from pipelines.specs.plan import flops_until
from pipelines.training.curve import read_curve


def advance(trial: Trial, measure: Measure, rung: int, job_uri: str) -> RungResult:
    """Bring a trial to a rung, unless it has been there.

    Args:
        trial: which.
        measure: scores it.
        rung: index into its steps; the rungs before have been reached.
        job_uri: of the search.

    Raises:
        JobCancelled: the job was asked to stop.
        PipelineError: see `train_until` and `score_trial`.
    """
    found = RungResult.find(trial, rung)
    if found is not None:
        return found
    step = trial.steps[rung]
    start = time.perf_counter()
    try:
        losses = train_until(trial.task, step, trial.uri, job_uri)
    except NonFiniteLossError as error:
        seconds = time.perf_counter() - start
        result = _result(trial, error.step, None, {}, read_curve(trial.uri), seconds, 0.0, str(error))
        result.write(trial, rung)
        return result
    trained = time.perf_counter()
    try:
        score = score_trial(measure, trial, step)
        value, figures, reason = score.value, dict(score.figures), ""
    except NonFiniteLossError as error:
        value, figures, reason = None, {}, f"while it was scored: {error}"
    seconds = time.perf_counter() - trained
    result = _result(trial, step, value, figures, losses, trained - start, seconds, reason)
    result.write(trial, rung)
    return result


def _result(
    trial: Trial,
    step: int,
    score: float | None,
    figures: dict[str, float],
    losses: Losses,
    train_seconds: float,
    score_seconds: float,
    reason: str,
) -> RungResult:
    spec = trial.spec
    return RungResult(
        step=step,
        tokens=spec.training.tokens_until(step),
        flops=flops_until(spec, trial.task.corpus.vocab_size, step),
        score=score,
        figures=figures,
        losses=losses,
        train_seconds=train_seconds,
        score_seconds=score_seconds,
        reason=reason,
    )
