"""How far all runs of a finetuning job are together."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from pipelines import storage
from pipelines.finetuning.seed_task import PROGRESS_FILE, SeedResult, SeedTask
from pipelines.job import REPORT_INTERVAL_SECONDS, ProgressReporter

log = logging.getLogger(__name__)

STALL_SECONDS = 3600.0
"""Runs of which none comes on for so long hang. Long, for a run says nothing while it is scored."""


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
        self._planned = [run.num_steps(run.prepared.steps_per_epoch(run.training.batch_size)) for run in runs]
        self._began = self._told_at = self._moved_at = time.monotonic()
        self._seen, _ = self._read()
        self._before = sum(self._seen)

    def tell(self, *, now: bool = False) -> None:
        """Say it, if it is time.

        Raises:
            JobCancelled: the job was asked to stop.
            TimeoutError: nothing moved for `STALL_SECONDS`.
        """
        self._reporter.raise_if_cancelled()
        clock = time.monotonic()
        if clock - self._told_at < REPORT_INTERVAL_SECONDS and not now:
            return
        self._told_at = clock
        seen, at = self._read()
        if seen != self._seen:
            self._seen, self._moved_at = seen, clock
        elif clock - self._moved_at > STALL_SECONDS and len(self._results) < len(self._runs):
            raise TimeoutError(f"no finetuning run took a step or ended for {STALL_SECONDS:.0f} s{at}")
        taken, total = sum(seen), sum(self._planned)
        rate = (taken - self._before) / max(clock - self._began, 1e-9)
        self._reporter.update(
            step=taken,
            num_train_steps=total,
            eta_seconds=(total - taken) / rate if rate > 0 else None,
            message=f"{len(self._results)} of {len(self._runs)} runs done{at}",
            fraction=min(1.0, taken / total),
        )

    def _read(self) -> tuple[list[int], str]:
        """Steps of each run, and what the first that is going on is at."""
        steps, at = [], ""
        for place, run in enumerate(self._runs):
            if place in self._results:
                steps.append(self._planned[place])
                continue
            try:
                uri = storage.join(run.uri, PROGRESS_FILE)
                told = storage.read_json(uri) if storage.exists(uri) else {"step": 0}
            except storage.StorageError as error:
                log.warning("run_progress_unread", extra={"reason": str(error)[:300]})
                told = {"step": 0}
            steps.append(int(told["step"]))
            if steps[-1]:
                at = at or f", {run.name} at step {told['step']} of {told['num_steps']}"
        return steps, at
