"""Whether trials that have begun still live: the driver's own heartbeat says nothing of them."""

from __future__ import annotations

import time
from typing import Any

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.searching.ledger import Ledger
from pipelines.searching.trial import FOLDER
from pipelines.training.curve import PROGRESS_FILE

LOOK_SECONDS = 30.0
STALL_SECONDS = 3 * 3600.0
"""A trial that says nothing for so long hangs. It speaks at log steps and before each thing it is scored on; its
longest silence is the finetuning of one task with one seed."""


class TrialWatch:
    """Looks at what the trials that run say of themselves.

    One that waits says so, or has nobody yet who could say anything: it may wait as long as the cluster is full. Its
    clock starts with the first word of the process that works on it.

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
            try:
                told = self._read(trial.folder)
            except StorageError:
                continue  # neither a sign of life nor of waiting
            if told is None or told.get("is_waiting"):
                self._seen.pop(trial.number, None)
                continue
            before, since = self._seen.get(trial.number, (None, now))
            if told != before:
                self._seen[trial.number] = (told, now)
            elif now - since > STALL_SECONDS:
                doing = told.get("doing")
                raise TimeoutError(f"trial {trial.number} said nothing for {now - since:.0f} s, while {doing}")

    def _read(self, folder: str) -> dict[str, Any] | None:
        uri = storage.join(self._job_uri, FOLDER, folder, PROGRESS_FILE)
        return storage.read_json(uri) if storage.exists(uri) else None
