"""Token buckets in the memory of one process: with several replicas each has its own."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_BUCKETS = 10_000
"""The bucket that was asked longest ago makes room: to forget one fills it, which is the only harm."""


class RateLimit:
    """So many per minute and name, and as many at once after a rest."""

    def __init__(
        self, per_minute: float, now: Callable[[], float] = time.monotonic, max_buckets: int = MAX_BUCKETS
    ) -> None:
        self._rate = per_minute / 60.0
        self._most = max(1.0, per_minute)
        self._now = now
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str) -> float:
        """Take one; 0 where there was one, else the seconds until there is."""
        with self._lock:
            now = self._now()
            left, seen_at = self._buckets.pop(name, (self._most, now))
            left = min(self._most, left + (now - seen_at) * self._rate)
            wait = 0.0 if left >= 1 else (1 - left) / self._rate
            self._buckets[name] = (left - 1 if not wait else left, now)
            while len(self._buckets) > self._max_buckets:
                self._buckets.popitem(last=False)
            return wait

    def __len__(self) -> int:
        return len(self._buckets)
