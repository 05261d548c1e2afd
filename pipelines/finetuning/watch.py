"""Whether finetuning runs that have begun still live, by what they say of themselves."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines import storage
from pipelines.finetuning.seed_task import PROGRESS_FILE, SeedResult, SeedTask

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
STALL_SECONDS = 3600.0
"""A run that says nothing for so long hangs: it speaks every second or so, be it trained or scored."""


class RunsWatch:
    """Reads what runs say of themselves.

    Args:
        runs: all of them.
        results: those that are finished, which grows.
    """

    def __init__(self, runs: Sequence[SeedTask], results: Mapping[int, SeedResult]) -> None:
        self._runs = runs
        self._results = results
        self._looked_at = time.monotonic()
        self._seen: dict[int, dict[str, Any]] = {}
        self._seen |= {place: self._read(place) for place in self.unfinished()}
        self._moved_at: dict[int, float] = {}
        """When each run said something new. Those that wait for room on the cluster have not, however long it takes."""

    def look(self, *, now: bool = False) -> bool:
        """Look, if it is time; whether it was.

        Raises:
            TimeoutError: a run that had begun said nothing for `STALL_SECONDS`.
        """
        clock = time.monotonic()
        if clock - self._looked_at < LOOK_SECONDS and not now:
            return False
        self._looked_at = clock
        for place in self.unfinished():
            told = self._read(place)
            if told != self._seen.get(place):
                self._seen[place], self._moved_at[place] = told, clock
            elif clock - self._moved_at.get(place, clock) > STALL_SECONDS:
                at = f" at step {told['step']} of {told['num_steps']}" if told else ""
                raise TimeoutError(f"{self._runs[place].name} said nothing for {STALL_SECONDS:.0f} s{at}")
        return True

    def unfinished(self) -> list[int]:
        """Places of the runs that have no result."""
        return [place for place in range(len(self._runs)) if place not in self._results]

    def going(self) -> list[int]:
        """Of these the ones that have begun."""
        return [place for place in self.unfinished() if place in self._moved_at]

    def told(self, place: int) -> Mapping[str, Any]:
        """What a run said last."""
        return self._seen.get(place, {})

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
