"""How far all runs of a finetuning job are together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pipelines.finetuning.seed_task import SeedResult, SeedTask
from pipelines.finetuning.watch import RunsWatch
from pipelines.job import ProgressReporter


class RunsProgress:
    """Reads what the runs say of themselves and tells it as one.

    Args:
        runs: all runs of the job.
        results: those that are finished, which grows.
        reporter: who is told.
    """

    def __init__(self, runs: Sequence[SeedTask], results: Mapping[int, SeedResult], reporter: ProgressReporter) -> None:
        self._runs = runs
        self._results = results
        self._reporter = reporter
        self._watch = RunsWatch(runs, results)
        self._planned = [run.num_steps(run.prepared.steps_per_epoch(run.training.batch_size)) for run in runs]
        self._began = time.monotonic()
        self._before = self._taken()

    def tell(self, *, now: bool = False) -> None:
        """Say it, if it is time.

        Raises:
            JobCancelled: the job was asked to stop.
            TimeoutError: a run that had begun said nothing for `watch.STALL_SECONDS`.
        """
        self._reporter.raise_if_cancelled()
        if not self._watch.look(now=now):
            return
        taken, total = self._taken(), sum(self._planned)
        rate = (taken - self._before) / max(time.monotonic() - self._began, 1e-9)
        self._reporter.update(
            step=taken,
            num_train_steps=total,
            eta_seconds=(total - taken) / rate if rate > 0 else None,
            message=f"{len(self._results)} of {len(self._runs)} runs done{self._doing()}",
            fraction=min(1.0, taken / total),
        )

    def _taken(self) -> int:
        """Steps of all runs."""
        going = sum(int(self._watch.told(place).get("step", 0)) for place in self._watch.unfinished())
        return going + sum(self._planned[place] for place in self._results)

    def _doing(self) -> str:
        """What the first run that goes on is at."""
        going = self._watch.going()
        if not going:
            return ", waiting for processes to begin" if self._watch.unfinished() else ""
        told = self._watch.told(going[0])
        scored = f", {told['num_scored']} rows scored" if told.get("num_scored") else ""
        return f", {self._runs[going[0]].name} at step {told['step']} of {told['num_steps']}{scored}"
