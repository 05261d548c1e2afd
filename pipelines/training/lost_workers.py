"""What is told while lost workers are replaced: rank 0, which tells everything else, is gone then."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime
from typing import Any

import ray.train

from pipelines.claims import Claim
from pipelines.errors import JobSuperseded
from pipelines.job import JobDirectory
from pipelines.storage import StorageError
from pipelines.training.curve import say_alive

log = logging.getLogger(__name__)


class TellJob(ray.train.UserCallback):
    """Of a job: its progress says that it waits, which may be long where a node has to come first.

    The heartbeat is not repeated: a job whose workers do not come back for as long as it may be silent gives its place
    back, and waits in the queue.

    Args:
        claim: on the job's folder.
        num_workers: that train together.
    """

    def __init__(self, claim: Claim, num_workers: int) -> None:
        self._claim = claim
        self._num_workers = num_workers

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Ray Train calls it before it starts all workers anew."""
        ranks = ", ".join(str(rank) for rank in sorted(worker_exceptions)) or "unknown"
        reasons = [str(error)[:300] for error in worker_exceptions.values()]
        log.warning("workers_lost", extra={"ranks": ranks, "reasons": reasons})
        message = (
            f"lost workers (rank {ranks}): all {self._num_workers} go on from the last checkpoint once there is room"
        )
        with contextlib.suppress(StorageError, JobSuperseded, ValueError):  # no training ends for it
            self._claim.check()
            directory = JobDirectory(self._claim.job_uri)
            told = directory.read_progress()
            if told is None or told.attempt != self._claim.attempt:
                return
            changes = {"message": message, "heartbeat_at": datetime.now(UTC)}
            directory.write_progress(told.model_copy(update=changes | {"tokens_per_second": None, "eta_seconds": None}))


class TellTrial(ray.train.UserCallback):
    """Of a trial: its workers' last sign of life is no longer theirs."""

    def __init__(self, trial_uri: str) -> None:
        self._trial_uri = trial_uri

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Ray Train calls it before it starts all workers anew."""
        say_alive(self._trial_uri, "waiting for new workers", is_waiting=True)
