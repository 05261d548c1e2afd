"""Leases: of several replicas over one database one acts at a time, and one that was frozen cannot write afterwards.

Every time the lease changes hands its token grows. A replica that acts begins each of its transactions by `guard`, an
UPDATE of the lease's row that asks for its own token. That locks the row to the end of the transaction: a successor
takes over either before, and then nothing is touched and the transaction is given up, or after its commit. Only the
database's clock decides when a lease has run out; replicas measure durations, on clocks that are never set. Where the
database's clock is set back, a lease is free all the same after `MAX_LEASES` times its duration; where it is set
forward, another replica may take over early.

Source: Kleppmann 2016, "How to do distributed locking", on fencing tokens.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Double, Engine, Update, literal_column, update
from sqlalchemy.orm import Session

from service.feeds.interfaces import LeaseLostError
from service.ledger.feed_tables import LeaseRow

RECONCILER_LEASE = "reconciler"
MARGIN_FRACTION = 1 / 3
"""Of a lease's duration: so long before its end its holder stops to act."""
MAX_LEASES = 4
"""Durations that the rest of a lease may have, by the database's clock; replicas may be set to other ones."""


class SqlLease:
    """`Lease` on an engine. `try_hold` and `release` may run beside the thread that acts."""

    def __init__(
        self,
        engine: Engine,
        seconds: float,
        name: str = RECONCILER_LEASE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds of this process, from any start."""
        self._engine = engine
        self._seconds = seconds
        self._name = name
        self._clock = clock
        self.holder = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._held: tuple[int, float] | None = None
        """The token, and until when it is certain to be ours; replaced as one, so nobody waits for it."""
        self._pinned: int | None = None
        self._asking = threading.Lock()

    def try_hold(self) -> bool:
        """Take the lease if it is free, or hold it for longer; whether it is ours now."""
        with self._asking:
            # From before the question: the database counts from some later moment.
            asked_at = self._clock()
            now = database_seconds(self._engine)
            values: dict[str, Any] = {"expires_at": now + self._seconds}
            with Session(self._engine) as session, session.begin():
                token = None
                if self._held is not None:
                    # One that ran out and that nobody took is ours still.
                    ours = (LeaseRow.holder == self.holder) & (LeaseRow.token == self._held[0])
                    token = session.scalar(self._update(ours).values(values).returning(LeaseRow.token))
                if token is None:
                    # One that would last far longer than any does was taken before the clock was set back. Its holder
                    # may still live: then it loses the lease, which harms nothing, for its token is no longer good.
                    is_over = (LeaseRow.expires_at <= now) | (LeaseRow.expires_at > now + MAX_LEASES * self._seconds)
                    take = self._update(is_over)
                    values |= {"holder": self.holder, "token": LeaseRow.token + 1}
                    token = session.scalar(take.values(values).returning(LeaseRow.token))
            self._held = None if token is None else (token, asked_at + self._seconds * (1 - MARGIN_FRACTION))
            return token is not None

    def pin(self) -> bool:
        """Let the writes that follow be made under the lease as it is held now; whether it is."""
        held = self._held
        self._pinned = None if held is None else held[0]
        return self.is_held

    @property
    def is_held(self) -> bool:
        """Whether the pinned lease is certain to be ours a while yet."""
        held = self._held
        return held is not None and held[0] == self._pinned and self._clock() < held[1]

    def guard(self, session: Session) -> None:
        """The first statement of a transaction of whoever acts.

        Raises:
            LeaseLostError: the pinned lease is another's by now.
        """
        mine = self._update(LeaseRow.token == self._pinned).values(token=LeaseRow.token)
        if self._pinned is None or session.scalar(mine.returning(LeaseRow.token)) is None:
            raise LeaseLostError(f"the lease {self._name!r} with token {self._pinned} is another replica's by now")

    def check(self) -> None:
        """Ask the database, which alone knows, whether the pinned lease is ours still.

        Raises:
            LeaseLostError: it is another's by now.
        """
        with Session(self._engine) as session, session.begin():
            self.guard(session)

    def release(self) -> None:
        """Let another have it at once. Its token stays valid until then, so a last write is not lost."""
        with self._asking:
            held, self._held = self._held, None
            if held is None:
                return
            mine = self._update((LeaseRow.token == held[0]) & (LeaseRow.holder == self.holder))
            with Session(self._engine) as session, session.begin():
                session.execute(mine.values(expires_at=0.0))

    def _update(self, condition: ColumnElement[bool]) -> Update:
        return update(LeaseRow).where(LeaseRow.name == self._name, condition)


def database_seconds(engine: Engine) -> ColumnElement[float]:
    """Now, in seconds since 1970, by the database's clock and not as of the start of the transaction."""
    if engine.dialect.name == "sqlite":
        return literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double)
    return literal_column("extract(epoch from clock_timestamp())::double precision", Double)
