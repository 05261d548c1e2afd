"""Checkpoints of trials: kept while they are of use, deleted after."""

from __future__ import annotations

import logging

from pipelines import storage
from pipelines.searching.ledger import Ledger
from pipelines.searching.trial import FOLDER, PROBE_FOLDER
from pipelines.training.fitting import RAY_TRAIN_FOLDER

log = logging.getLogger(__name__)


class CheckpointSweeper:
    """Deletes the checkpoints of trials that go no further and are not among the best, and what Ray Train and probes
    that failed left beside them.

    Args:
        ledger: of the job.
        job_uri: its directory.
        num_kept: of those that ran to their ends: from these the final round and the winner are taken.
    """

    def __init__(self, ledger: Ledger, job_uri: str, num_kept: int) -> None:
        self._ledger = ledger
        self._job_uri = job_uri
        self._num_kept = num_kept
        self._swept: set[str] = set()

    def sweep(self) -> None:
        """Delete what is of no use any more. A folder that cannot be deleted now is tried again."""
        if self._ledger.is_behind:
            return  # an attempt that starts from what is written would want them
        # What failed may be tried again by the next attempt.
        ended = [one for one in self._ledger.trials if one.state in ("COMPLETED", "STOPPED", "DIVERGED")]
        # Of the base and of the final round all stay: the winner is one of them.
        kept = {one.folder for one in self._ledger.best(self._num_kept) if one.state == "COMPLETED"}
        kept |= {one.folder for one in self._ledger.trials if one.is_final or one.state == "RUNNING"}
        for folder in {one.folder for one in ended} - kept - self._swept:
            self._delete(folder)

    def sweep_all(self) -> None:
        """The job is over: what is exported needs no checkpoint."""
        for folder in {one.folder for one in self._ledger.trials if one.folder} - self._swept:
            self._delete(folder)

    def _delete(self, folder: str) -> None:
        try:
            for name in ("checkpoints", RAY_TRAIN_FOLDER, PROBE_FOLDER):
                storage.delete_tree(storage.join(self._job_uri, FOLDER, folder, name))
        except storage.StorageError as error:
            log.warning("checkpoints_left", extra={"trial": folder, "reason": str(error)[:300]})
        else:
            self._swept.add(folder)
