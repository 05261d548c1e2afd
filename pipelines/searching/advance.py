"""A trial from one rung to the next: train, score, keep."""

from __future__ import annotations

import contextlib
import math
import time

from pipelines.errors import NonFiniteLossError
from pipelines.searching.measures import Measure
from pipelines.searching.scoring import score_trial
from pipelines.searching.train_trial import Losses, train_until
from pipelines.searching.trial import RungResult, Trial, last_scored
from pipelines.specs.plan import flops_until
from pipelines.training.curve import only_waiting, read_curve, say_alive


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
    # Of several workers this process is the host, and a host that lives says nothing of them.
    with only_waiting() if trial.spec.compute.num_workers > 1 else contextlib.nullcontext():
        result = _train_and_score(trial, measure, trial.steps[rung], job_uri)
    result.write(trial, rung)
    return result


def _train_and_score(trial: Trial, measure: Measure, step: int, job_uri: str) -> RungResult:
    say_alive(trial.uri, f"going on to step {step}")
    start = time.perf_counter()
    try:
        losses = _new_of(train_until(trial.task, step, trial.uri, job_uri), trial, step)
    except NonFiniteLossError as error:
        seconds = time.perf_counter() - start
        losses = _new_of(read_curve(trial.uri), trial, step)
        return _result(trial, error.step, None, {}, losses, seconds, 0.0, str(error))
    trained = time.perf_counter()
    try:
        score = score_trial(measure, trial, step)
        # A score that is no number would be the best or the worst there is, as it happens to be compared.
        is_finite = math.isfinite(score.value)
        value, reason = (score.value, "") if is_finite else (None, "its score is not finite")
        figures = {name: one for name, one in score.figures.items() if math.isfinite(one)}
    except NonFiniteLossError as error:
        value, figures, reason = None, {}, f"while it was scored: {error}"
    seconds = time.perf_counter() - trained
    return _result(trial, step, value, figures, losses, trained - start, seconds, reason)


def _new_of(curve: Losses, trial: Trial, step: int) -> Losses:
    """Of a trial's curve what no rung before has: rungs of other shares too, whose scores lie in the same folder."""
    since = last_scored(trial, step)
    return tuple((one, figures) for one, figures in curve if since < one <= step)


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
