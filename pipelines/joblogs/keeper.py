"""Takes lines from any thread and never keeps it waiting; a thread of its own writes them."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from pipelines.joblogs.lines import encode_plain, plain_line
from pipelines.joblogs.parts import PartWriter
from pipelines.joblogs.redaction import redactor

log = logging.getLogger(__name__)

FLUSH_SECONDS = 3.0
"""Between two writings: what a process that is killed loses at most."""
_PAUSE_SECONDS = 0.5
"""Between two writings that are asked for by faults or by a full part."""
_LONGEST_PAUSE_SECONDS = 60.0
_PENDING_BYTES = 1 << 20
"""Lines that wait for the storage; of more the oldest are lost, and counted."""
_WAKING_BYTES = 256 * 1024
CLOSE_SECONDS = 5.0
"""How long a process that ends waits for its last lines to be written."""


class LogKeeper:
    """The log of one source while this process is it. A storage that is away costs lines, and never anything else."""

    def __init__(self, uri: str, source: str, max_bytes: int, flush_seconds: float = FLUSH_SECONDS) -> None:
        """`uri`: the source's folder."""
        self._uri = uri
        self._source = source
        self._flush_seconds = flush_seconds
        self._redact = redactor()
        self._writer = PartWriter(uri, max_bytes)
        self._lock = threading.RLock()  # a signal's handler may log while its thread is here
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._num_lost = 0
        self._last_time = 0.0
        self._is_refused = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"log-{source}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        atexit.register(self.close)

    def add(
        self,
        level: str,
        logger: str,
        message: str,
        fields: Mapping[str, Any] | None = None,
        at: float | None = None,
    ) -> None:
        """Take one line; never raises, and waits for nothing but other callers.

        Args:
            level: `debug`, `info`, `warning`, `error` or `critical`; the last two are written at once.
            logger: its name.
            message: what is said.
            fields: what goes with it.
            at: seconds since 1970; now when None.
        """
        try:
            # Not under the lock: whose words these are may take their time, and log by themselves.
            said = self._plain(level, logger, message, fields or {})
            with self._lock:
                # Times of a source never run back, so that its lines and those of others can be laid into one another.
                self._last_time = max(self._last_time, time.time() if at is None else at)
                line = encode_plain(said, self._last_time)
                self._pending.append(line)
                self._pending_bytes += len(line)
                self._keep_within_bounds()
                is_urgent = level in ("error", "critical") or self._pending_bytes > _WAKING_BYTES
        except Exception:  # noqa: BLE001 - whatever was logged, the program goes on
            self._num_lost += 1
        else:
            if is_urgent:
                self._wake.set()

    def close(self) -> None:
        """Write what is left, as far as that takes no longer than `CLOSE_SECONDS`; may be called again."""
        atexit.unregister(self.close)
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=CLOSE_SECONDS)

    def _plain(self, level: str, logger: str, message: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        return plain_line(
            level=level,
            logger=logger,
            source=self._source,
            message=message,
            fields=fields,
            redact=self._redact,
        )

    def _keep_within_bounds(self) -> None:
        while self._pending_bytes > _PENDING_BYTES or (self._is_refused and self._pending):
            self._pending_bytes -= len(self._pending.popleft())
            self._num_lost += 1

    def _work(self) -> None:
        num_failures = 0
        while True:
            self._wake.wait(self._flush_seconds)
            self._wake.clear()  # before the look at the end, whose call would be lost between the two
            is_last = self._closing.is_set()
            try:
                self._write()
            except Exception as error:  # noqa: BLE001 - nothing that a storage does ends a training
                num_failures += 1
                if num_failures == 1:
                    log.warning("log_unwritten", extra={"source": self._source, "reason": str(error)[:300]})
            else:
                num_failures = 0
            if is_last:
                return
            pause = min(self._flush_seconds * 2.0**num_failures, _LONGEST_PAUSE_SECONDS) if num_failures else 0.0
            self._closing.wait(max(pause, min(_PAUSE_SECONDS, self._flush_seconds)))

    def _write(self) -> None:
        with self._lock:
            taken, self._pending, self._pending_bytes = self._pending, deque(), 0
            num_lost, self._num_lost = self._num_lost, 0
            notice = None
            if num_lost and not self._is_refused:
                said = self._plain("warning", __name__, "log_lines_lost", {"num_lines": num_lost})
                notice = encode_plain(said, self._last_time)
                taken.appendleft(notice)
        try:
            if not self._writer.open():
                self._is_refused = True
                taken.clear()
                log.warning("log_refused", extra={"source": self._source, "why": "the attempt has too many sources"})
            self._writer.write(taken)
        finally:
            if notice is not None and taken and taken[0] is notice:
                taken.popleft()
                with self._lock:
                    self._num_lost += num_lost  # told with those that are lost until it can be told
            self._put_back(taken)

    def _put_back(self, lines: deque[bytes]) -> None:
        """What the writer has not taken comes before what was logged since."""
        if not lines:
            return
        with self._lock:
            lines.extend(self._pending)
            self._pending = lines
            self._pending_bytes = sum(map(len, lines))
            self._keep_within_bounds()
