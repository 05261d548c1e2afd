"""Whether trials that have begun still live: the driver's own heartbeat says nothing of them."""

from __future__ import annotations

import time

from pipelines import storage
from pipelines.errors import PipelineError
from pipelines.searching.ledger import Ledger
from pipelines.searching.trial import FOLDER
from pipelines.training.curve import PROGRESS_FILE

LOOK_SECONDS = 30.0
STALL_SECONDS = 3 * 3600.0
"""A trial that says nothing for so long hangs. It speaks at log steps and before each thing it is scored on; its
longest silence is the finetuning of one task with one seed."""


class TrialWatch:
    """Looks at what the trials that run say of themselves.

    Args:
        ledger: tells which run.
        job_uri: of the search.
    """

    def __init__(self, ledger: Ledger, job_uri: str) -> None:
        self._ledger = ledger
        self._job_uri = job_uri
        self._looked_at = time.monotonic()
        self._seen: dict[int, tuple[object, float]] = {}
        """What each said last, and when that was new."""

    def look(self) -> None:
        """Look, if it is time.

        Raises:
            TimeoutError: a trial that had begun said nothing for `STALL_SECONDS`.
        """
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        for trial in self._ledger.trials:
            if trial.state != "RUNNING":
                self._seen.pop(trial.number, None)
                continue
            told = self._read(trial.folder)
            if told is None:
                continue  # it waits for room on the cluster, or for its process
            before, since = self._seen.get(trial.number, (None, now))
            if told != before:
                self._seen[trial.number] = (told, now)
            elif now - since > STALL_SECONDS:
                raise TimeoutError(f"trial {trial.number} said nothing for {now - since:.0f} s, at {told}")

    def _read(self, folder: str) -> object | None:
        uri = storage.join(self._job_uri, FOLDER, folder, PROGRESS_FILE)
        try:
            return storage.read_json(uri) if storage.exists(uri) else None
        except PipelineError:
            return None
