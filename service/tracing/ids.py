"""Ids of a job's trace. They follow from the job's id, so that whichever replica tells a part of its life, before or
after a restart, tells it of the same trace.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


def trace_id_of(job_id: str) -> int:
    """The trace of a job, 128 bits: the first half of its id's SHA-256."""
    return int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:16], "big")


def span_id_of(name: str) -> int:
    """The span of a job, by its id, or of an attempt, by Ray's name for it: 64 bits."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[16:24], "big")


class GivenIds(RandomIdGenerator):
    """Random ids, but for the span that is begun within `given`."""

    def __init__(self) -> None:
        self._here = threading.local()

    @contextmanager
    def given(self, trace_id: int, span_id: int | None) -> Iterator[None]:
        """The span begun here has these; a random id of its own where there is none for it."""
        self._here.ids = (trace_id, span_id)
        try:
            yield
        finally:
            self._here.ids = (None, None)

    def generate_trace_id(self) -> int:
        """128 bits, never 0."""
        trace_id, _ = getattr(self._here, "ids", (None, None))
        return trace_id or super().generate_trace_id()

    def generate_span_id(self) -> int:
        """64 bits, never 0."""
        _, span_id = getattr(self._here, "ids", (None, None))
        return span_id or super().generate_span_id()
