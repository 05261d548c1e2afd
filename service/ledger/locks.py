"""One at a time over all replicas, by name: on rows of the table of leases, made when they are first asked for."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from service.ledger.feed_tables import LeaseRow
from service.ledger.lease import SqlLease

LOCK_SECONDS = 60.0
"""A lock whose holder died is free again after so long."""
_POLL_SECONDS = 0.05


class SqlLocks:
    """`Locks` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def holding(self, name: str, patience_seconds: float, seconds: float = LOCK_SECONDS) -> Iterator[bool]:
        """Hold a lock for the block; yields False, holding nothing, where others kept it for so long."""
        row = f"lock:{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        self._make(row)
        lease = SqlLease(self._engine, seconds, row)
        deadline = time.monotonic() + patience_seconds
        while not lease.try_hold():
            if time.monotonic() >= deadline:
                yield False
                return
            time.sleep(_POLL_SECONDS)
        try:
            yield True
        finally:
            lease.release()

    def _make(self, row: str) -> None:
        with self._engine.connect() as connection:
            if connection.scalar(select(LeaseRow.name).where(LeaseRow.name == row)) is not None:
                return
        # Another may make it at this moment, which is as well.
        with suppress(IntegrityError), self._engine.begin() as connection:
            connection.execute(insert(LeaseRow).values(name=row, holder="", token=0, expires_at=0.0))
