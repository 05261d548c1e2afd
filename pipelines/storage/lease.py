"""One writer at a time for an artifact: a lease file with an owner and a heartbeat.

Artifacts are bit for bit the same whoever writes them, so a lease saves work and decides nothing: should two writers
hold it at once, as object stores without conditional writes allow, both write the same bytes.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelines import storage
from pipelines.errors import ResourceError

log = logging.getLogger(__name__)

STALE_SECONDS = 60.0
"""A lease whose heartbeat stands still for so long belongs to a process that is gone."""


@contextmanager
def lease(
    uri: str,
    owner: str,
    is_complete: Callable[[], bool],
    *,
    report: Callable[[str], None] = lambda message: None,
    stale_seconds: float = STALE_SECONDS,
    timeout_seconds: float = 24 * 3600.0,
    poll_seconds: float = 1.0,
) -> Iterator[bool]:
    """Hold the lease at `uri` for the block; yields False, holding nothing, once `is_complete()` says so.

    An owner takes its own lease back at once, so a restarted job does not wait for itself.

    Raises:
        ResourceError: another owner kept the lease alive for `timeout_seconds`.
    """
    held = _Held(uri, owner, stale_seconds)
    started = time.monotonic()
    watched = _Watched(stale_seconds)
    while not is_complete():
        current = _read(uri)
        if current is None or current.get("owner") == owner or watched.is_stale(current):
            if held.take(replacing=current):
                break
        else:
            report(f"waiting for {current.get('owner', 'another job')}, which prepares the same")
        if time.monotonic() - started > timeout_seconds:
            holder = (current or {}).get("owner", "nobody")
            raise ResourceError(
                f"waited {timeout_seconds:.0f} s for {uri}, which {holder} holds and keeps alive; "
                "cancel that job, or delete the file if the job is gone"
            )
        time.sleep(poll_seconds)
    else:
        yield False
        return
    try:
        held.start()
        # The last holder may have finished between the look at the artifact and the taking of the lease.
        yield not is_complete()
    finally:
        held.release()


class _Watched:
    """Someone else's heartbeat. Stale by the clock it was written with, or by standing still on ours."""

    def __init__(self, stale_seconds: float) -> None:
        self._stale_seconds = stale_seconds
        self._seen: dict[str, Any] | None = None
        self._since = time.monotonic()

    def is_stale(self, current: dict[str, Any]) -> bool:
        if current != self._seen:
            self._seen, self._since = current, time.monotonic()
        beat = current.get("heartbeat_at")
        age = time.time() - beat if isinstance(beat, int | float) else 0.0  # it is being written this moment
        return max(age, time.monotonic() - self._since) > self._stale_seconds


class _Held:
    """Our own lease and the thread that keeps it alive."""

    def __init__(self, uri: str, owner: str, stale_seconds: float) -> None:
        self._uri = uri
        self._record = {"owner": owner, "token": uuid.uuid4().hex}
        self._interval = stale_seconds / 4
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease-heartbeat", daemon=True)

    def take(self, replacing: dict[str, Any] | None) -> bool:
        """Write the lease; True if it is ours when read again."""
        path = storage.local_path(self._uri)
        if replacing is None and path is not None:
            # Where the file system can say who came first, let it.
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.open("xb").close()
            except FileExistsError:
                return False
        self._write()
        return (_read(self._uri) or {}).get("token") == self._record["token"]

    def start(self) -> None:
        self._thread.start()

    def release(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        try:
            if (_read(self._uri) or {}).get("token") == self._record["token"]:
                storage.delete_tree(self._uri)
        except storage.StorageError as error:
            # It goes stale by itself; how the work ended is what the caller must hear.
            log.warning("lease_left_behind", extra={"uri": self._uri, "reason": error.reason})

    def _write(self) -> None:
        storage.write_json(self._uri, self._record | {"heartbeat_at": time.time()})

    def _beat(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                current = _read(self._uri)
                if current is not None and current.get("token") not in (None, self._record["token"]):
                    log.warning("lease_lost", extra={"uri": self._uri, "holder": current.get("owner")})
                    return
                self._write()
            except storage.StorageError as error:
                log.warning("lease_heartbeat_failed", extra={"uri": self._uri, "reason": error.reason})


def _read(uri: str) -> dict[str, Any] | None:
    """The lease as it stands; None where there is none, an empty one while it is being written."""
    if not storage.exists(uri):
        return None
    try:
        return storage.read_json(uri)
    except storage.StorageError:
        return None if not storage.exists(uri) else {}
