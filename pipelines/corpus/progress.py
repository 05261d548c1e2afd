"""What a long preparation tells the person who waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable

Report = Callable[[str, float | None], None]
"""Takes a line for people and the share of the whole preparation that is done, in [0, 1], or None. May raise."""


class Progress:
    """One stage's part of the way, from `start` to `end` of the whole. Speaks at most twice a second."""

    def __init__(self, report: Report, what: str, start: float, end: float) -> None:
        self._report, self._what, self._start, self._end = report, what, start, end
        self._fraction = start
        self._detail = ""
        self._spoke_at = 0.0
        self._say()

    def at(self, fraction: float, detail: str = "") -> None:
        """The share of this stage that is done."""
        self._fraction = self._start + fraction * (self._end - self._start)
        self._detail = detail
        if time.monotonic() - self._spoke_at > 0.5:
            self._say()

    def waiting(self, why: str | None) -> None:
        """Nothing came for a second; say so again, so that whoever wants to stop the job can."""
        self._say(f"waiting: {why}" if why else None)

    def _say(self, instead: str | None = None) -> None:
        self._spoke_at = time.monotonic()
        detail = instead or self._detail
        self._report(f"{self._what}: {detail}" if detail else self._what, min(1.0, self._fraction))
