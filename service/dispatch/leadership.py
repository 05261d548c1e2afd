"""Which of the replicas reconciles: the one that holds the lease, for as long as its loop goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from service.feeds.interfaces import Lease

log = structlog.get_logger(__name__)

STOP_SECONDS = 10.0
"""Longest wait for the thread that holds the lease, when the service stops."""
STUCK_SECONDS = 300.0
"""A loop that made no step for so long is thought to hang, and its lease is left to run out. One step waits for a few
answers of Ray and of the storage, each with a time-out of its own."""
RENEWALS_PER_LEASE = 4


class SoleLeader:
    """`Leadership` where there is one reconciler: always."""

    is_held = True
    fault = None

    def start(self, on_taken: Callable[[], None]) -> None:
        """Nothing has to be won."""

    def begin_round(self) -> bool:
        """A round may be made."""
        return True

    def check(self) -> None:
        """There is no other who could act."""

    def beat(self) -> None:
        """Nobody waits for a sign of life."""

    def stop(self) -> None:
        """Nothing is to be given back."""


class LeaseKeeper:
    """Takes the lease when it is free and holds it, in a thread of its own: a step that waits for Ray keeps it."""

    def __init__(self, lease: Lease, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds`: how long the lease lasts unless it is held for longer."""
        self._lease = lease
        self._pause_seconds = seconds / RENEWALS_PER_LEASE
        self._clock = clock
        self._beat_at = clock()
        self._was_held = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._on_taken: Callable[[], None] = lambda: None

    def start(self, on_taken: Callable[[], None]) -> None:
        """Begin; `on_taken` is called, on another thread, whenever the lease has become ours."""
        self._on_taken = on_taken
        self._thread.start()

    def begin_round(self) -> bool:
        """Whether a round may be made; its writes count as long as the lease is the one that is held now."""
        self.beat()
        return self._lease.pin()

    @property
    def is_held(self) -> bool:
        """Whether what the round does next may be done."""
        return self._lease.is_held

    def check(self) -> None:
        """Ask whether what is not written to the database may be done now.

        Raises:
            LeaseLostError: another replica acts by now.
        """
        self._lease.check()

    @property
    def fault(self) -> str | None:
        """What is wrong with this replica's own threads; None where nothing is."""
        if not self._thread.is_alive():
            return "The thread that holds the lease has ended."
        silent_seconds = self._clock() - self._beat_at
        if silent_seconds > STUCK_SECONDS:
            return f"The reconciler of this replica has made no step for {silent_seconds:.0f} seconds."
        return None

    def beat(self) -> None:
        """The loop goes on."""
        self._beat_at = self._clock()

    def stop(self) -> None:
        """Let another replica reconcile at once."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():  # it waits for a database that is away: the lease runs out by itself
            return
        try:
            self._lease.release()
        except Exception:  # the database is away: the lease runs out by itself
            log.exception("lease_not_released")

    def hold(self) -> None:
        """Take the lease or hold it for longer, unless the loop hangs."""
        if self._was_held and self._clock() - self._beat_at > STUCK_SECONDS:
            log.error("reconciler_hangs", silent_seconds=round(self._clock() - self._beat_at))
            return
        is_held = self._lease.try_hold()
        if is_held is not self._was_held:
            log.info("lease_taken" if is_held else "lease_lost")
        self._was_held, was_held = is_held, self._was_held
        if is_held and not was_held:
            self._on_taken()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.hold()
            except Exception:  # a database that is away comes back
                log.exception("lease_unknown")
            self._stop.wait(self._pause_seconds)
