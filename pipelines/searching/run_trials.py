"""Trials by Ray Tune: as many side by side as the spec says, each in an actor that takes one after another."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from ray import tune
from ray.tune.schedulers import FIFOScheduler

from pipelines import storage
from pipelines.errors import JobCancelled, StorageError
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.joblogs.context import current_context
from pipelines.searching.host import host_of
from pipelines.searching.ledger import Ledger
from pipelines.searching.measures import Measure
from pipelines.searching.schedulers import scheduler_of
from pipelines.searching.suggest import Proposer
from pipelines.searching.trainable import TrialActor, TrialActorTask
from pipelines.searching.trial import SearchContext
from pipelines.searching.tune_parts import NotRestored
from pipelines.searching.tune_searcher import TrialSearcher
from pipelines.specs.compute import WorkerSpec

TUNE_FOLDER = "ray_tune"
MEND_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Between attempts to read the last scores, before the attempt at the job is given up for them."""
_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # files of CSV and TensorBoard that nobody asked for
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # whoever interrupts a job means all of it
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # of its own state, which nobody restores
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "0",  # a result that waits is a decision that waits
}


def run_trials(
    context: SearchContext,
    measure: Measure,
    ledger: Ledger,
    proposer: Proposer,
    reporter: ProgressReporter,
    *,
    name: str,
    is_final: bool = False,
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """Run trials until the proposer has no more points, or there were as many as the spec asks for.

    Args:
        context: of the search; its shares are those of these trials.
        measure: scores them.
        ledger: of the job; what it has of an earlier attempt is gone on with.
        proposer: chooses the points.
        reporter: tells whether the job was asked to stop.
        name: of this attempt and round, among those of the job.
        is_final: whether this is the final round, in which nothing is stopped.
        on_step: called every second or so; what it raises is raised here.

    Raises:
        JobCancelled: the job was asked to stop.
        StorageError: the ledger or Ray Tune's own files cannot be written, or what trials came to cannot be read.
        ConnectionError: no trial came to a score, and some were only lost with their processes or for the storage:
            another attempt at the job may fare better.
    """
    search, directory = context.search, JobDirectory(context.job_uri)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)  # it misses the files that are switched off below
    os.environ.update({key: value for key, value in _ENVIRONMENT.items() if key not in os.environ})
    searcher = TrialSearcher(
        context, ledger, proposer, None if is_final else search.most_trials, is_final, reporter.is_cancelled
    )
    with _faults_of_files(directory.path(TUNE_FOLDER)):
        actor: Any = tune.with_parameters(TrialActor, task=TrialActorTask(context, measure, current_context()))
        tuner = tune.Tuner(
            tune.with_resources(actor, _held_by(context.base.compute)),
            tune_config=tune.TuneConfig(
                metric="score",
                mode=ledger.mode,
                search_alg=searcher,
                scheduler=FIFOScheduler() if is_final else scheduler_of(search.scheduler, search.searcher.seed),
                num_samples=-1,
                max_concurrent_trials=search.compute.max_concurrent_trials,
                reuse_actors=True,
                trial_name_creator=lambda trial: f"trial_{trial.config['number']:05d}",
                trial_dirname_creator=lambda trial: f"trial_{trial.config['number']:05d}",
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=directory.path(TUNE_FOLDER),
                stop=_CancelStopper(reporter),
                failure_config=tune.FailureConfig(max_failures=0),  # the searcher hands out again what was lost
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # rungs and checkpoints are ours
                callbacks=[_StepCallback(searcher, ledger, on_step)],
                verbose=0,
            ),
        )
        tuner.fit()
    unread = _mended(searcher, reporter)
    ledger.write(now=True)
    if searcher.was_cancelled:
        raise JobCancelled
    reporter.raise_if_cancelled()
    if unread is not None:
        raise unread
    own = [one for one in ledger.trials if one.is_final == is_final and one.state in ("COMPLETED", "STOPPED")]
    if searcher.losses and not any(one.score is not None for one in own):
        raise ConnectionError(f"no trial came to a score, {len(searcher.losses)} were lost; {searcher.losses[0]}")
    storage.delete_tree(directory.path(TUNE_FOLDER))


@contextlib.contextmanager
def _faults_of_files(uri: str) -> Iterator[None]:
    """Ray Tune writes files of its own, here and on the driver's disk: a fault with one is no fault of the job.

    Raises:
        StorageError: one could not be written.
    """
    try:
        yield
    except (TimeoutError, ConnectionError):  # are `OSError`s to Python, and say what they are
        raise
    except OSError as error:
        raise StorageError(uri, f"Ray Tune's own files: {error}") from error


def _mended(searcher: TrialSearcher, reporter: ProgressReporter) -> StorageError | None:
    """Read what is left to read; why it cannot be, or None."""
    unread = searcher.mend(now=True)
    for seconds in MEND_PAUSES_SECONDS:
        if unread is None or searcher.was_cancelled or reporter.is_cancelled():
            break
        time.sleep(seconds)
        unread = searcher.mend(now=True)
    return unread


def _held_by(compute: WorkerSpec) -> dict[str, float]:
    host = host_of(compute)
    if not host.cpus_per_worker:
        return {"memory": 1}  # a byte: Ray Tune will not have an actor that holds nothing
    held: dict[str, float] = {"CPU": host.cpus_per_worker}
    if host.gpus_per_worker:
        held["GPU"] = float(host.gpus_per_worker)
    return held


class _CancelStopper(NotRestored, tune.Stopper):
    def __init__(self, reporter: ProgressReporter) -> None:
        self._reporter = reporter

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._reporter.is_cancelled()


class _StepCallback(NotRestored, tune.Callback):
    def __init__(self, searcher: TrialSearcher, ledger: Ledger, on_step: Callable[[], None]) -> None:
        self._searcher = searcher
        self._ledger = ledger
        self._on_step = on_step

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._searcher.mend()
        self._ledger.write()
        self._on_step()
