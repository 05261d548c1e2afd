"""Whether trainings that have begun still live: the driver's own heartbeat says nothing of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.searching.ledger import Ledger
from pipelines.searching.trial import FOLDER
from pipelines.training.curve import PROGRESS_FILE, say_alive

LOOK_SECONDS = 30.0
STALL_SECONDS = 3 * 3600.0
"""A training that says nothing for so long hangs. It speaks at log steps, before each thing it is scored on, and every
few seconds while it is finetuned; its longest silence is a pass over held-out text or pairs."""


class SignWatch:
    """Looks at what trainings say of themselves.

    One that waits says so, or has nobody yet who could say anything: it may wait as long as the cluster is full. Its
    clock starts with the first word of the process that works on it.

    Args:
        going: tells those that have not ended: what each is called, and its folder.
    """

    def __init__(self, going: Callable[[], Mapping[str, str]]) -> None:
        self._going = going
        self._looked_at = time.monotonic()
        self._seen: dict[str, tuple[object, float]] = {}
        """What each said last, and when that was new."""

    def look(self) -> None:
        """Look, if it is time.

        Raises:
            TimeoutError: one that had begun said nothing for `STALL_SECONDS`.
        """
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        going = self._going()
        self._seen = {name: seen for name, seen in self._seen.items() if name in going}
        for name, uri in going.items():
            try:
                told = _read(uri)
            except StorageError:
                continue  # neither a sign of life nor of waiting
            if told is None or told.get("is_waiting"):
                self._seen.pop(name, None)
                continue
            before, since = self._seen.get(name, (None, now))
            if told != before:
                self._seen[name] = (told, now)
            elif now - since > STALL_SECONDS:
                raise TimeoutError(f"{name} said nothing for {now - since:.0f} s, while {told.get('doing')}")


class TrialWatch(SignWatch):
    """Of all trials that run.

    Args:
        ledger: tells which do.
        job_uri: of the search.
    """

    def __init__(self, ledger: Ledger, job_uri: str) -> None:
        def running() -> dict[str, str]:
            own = (one for one in ledger.trials if one.state == "RUNNING")
            return {f"trial {one.number}": storage.join(job_uri, FOLDER, one.folder) for one in own}

        super().__init__(running)


class FolderWatch(SignWatch):
    """Of one training, which a process is about to be asked for; what an earlier one said counts for nothing.

    Args:
        name: of what is trained, for the message.
        uri: its folder.
    """

    def __init__(self, name: str, uri: str) -> None:
        say_alive(uri, "waiting for a process", is_waiting=True)
        super().__init__(lambda: {name: uri})


def _read(folder: str) -> dict[str, Any] | None:
    uri = storage.join(folder, PROGRESS_FILE)
    return storage.read_json(uri) if storage.exists(uri) else None
