"""How far all runs of a finetuning job are together."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines import storage
from pipelines.finetuning.seed_task import PROGRESS_FILE, SeedResult, SeedTask
from pipelines.job import REPORT_INTERVAL_SECONDS, ProgressReporter

log = logging.getLogger(__name__)

STALL_SECONDS = 3600.0
"""A run that says nothing for so long hangs: it speaks every second or so, be it trained or scored."""


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
        self._began = self._told_at = time.monotonic()
        self._seen: dict[int, dict[str, Any]] = {}
        self._seen |= {place: self._read(place) for place in self._unfinished()}
        self._moved_at: dict[int, float] = {}
        """When each run said something new. Those that wait for room on the cluster have not, however long it takes."""
        self._before = self._taken()

    def tell(self, *, now: bool = False) -> None:
        """Say it, if it is time.

        Raises:
            JobCancelled: the job was asked to stop.
            TimeoutError: a run that had begun said nothing for `STALL_SECONDS`.
        """
        self._reporter.raise_if_cancelled()
        clock = time.monotonic()
        if clock - self._told_at < REPORT_INTERVAL_SECONDS and not now:
            return
        self._told_at = clock
        for place in self._unfinished():
            self._look(place, clock)
        taken, total = self._taken(), sum(self._planned)
        rate = (taken - self._before) / max(clock - self._began, 1e-9)
        self._reporter.update(
            step=taken,
            num_train_steps=total,
            eta_seconds=(total - taken) / rate if rate > 0 else None,
            message=f"{len(self._results)} of {len(self._runs)} runs done{self._doing()}",
            fraction=min(1.0, taken / total),
        )

    def _unfinished(self) -> list[int]:
        return [place for place in range(len(self._runs)) if place not in self._results]

    def _look(self, place: int, clock: float) -> None:
        told = self._read(place)
        if told != self._seen.get(place):
            self._seen[place], self._moved_at[place] = told, clock
        elif clock - self._moved_at.get(place, clock) > STALL_SECONDS:
            at = f" at step {told['step']} of {told['num_steps']}" if told else ""
            raise TimeoutError(f"{self._runs[place].name} said nothing for {STALL_SECONDS:.0f} s{at}")

    def _read(self, place: int) -> dict[str, Any]:
        """What a run said last; nothing before it begins."""
        try:
            uri = storage.join(self._runs[place].uri, PROGRESS_FILE)
            if storage.exists(uri):
                told: dict[str, Any] = storage.read_json(uri)
                return told
        except storage.StorageError as error:
            log.warning("run_progress_unread", extra={"reason": str(error)[:300]})
        return self._seen.get(place, {})  # what was said once stays said

    def _taken(self) -> int:
        """Steps of all runs."""
        going = sum(int(self._seen[place].get("step", 0)) for place in self._unfinished())
        return going + sum(self._planned[place] for place in self._results)

    def _doing(self) -> str:
        """What the first run that goes on is at."""
        going = [place for place in self._unfinished() if place in self._moved_at]
        if not going:
            return ", waiting for processes to begin" if self._unfinished() else ""
        told = self._seen[going[0]]
        scored = f", {told['num_scored']} rows scored" if told.get("num_scored") else ""
        return f", {self._runs[going[0]].name} at step {told['step']} of {told['num_steps']}{scored}"
