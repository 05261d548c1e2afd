"""Tables of events and leases, beside those of `tables.py`."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Double, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from service.ledger.tables import Base, UtcDateTime


class EventRow(Base):
    """`service.feeds.records.JobEvent`. Without a foreign key: what is told outlives what it tells of."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "job_id", "seq"), Index(None, "project", "seq"))

    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    job_id: Mapped[str] = mapped_column(String(63))
    project: Mapped[str | None] = mapped_column(String(40))
    """The job's, which never changes: whoever follows all jobs is given those of the projects that they see. Null where
    a replica of a version that knew no projects wrote it, beside one of ours."""
    type: Mapped[str] = mapped_column(String(20))
    payload: Mapped[str] = mapped_column(Text)


class EventCounterRow(Base):
    """The number of the last event and of the last that was deleted: one row, whose id is 1."""

    __tablename__ = "event_counter"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    last_seq: Mapped[int] = mapped_column(BigInteger)
    pruned_seq: Mapped[int] = mapped_column(BigInteger)


class LeaseRow(Base):
    """Who may act, and until when."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    holder: Mapped[str] = mapped_column(String(100))
    token: Mapped[int] = mapped_column(BigInteger)
    """Larger for each next holder, never used twice."""
    expires_at: Mapped[float] = mapped_column(Double)
    """Seconds since 1970 by the database's clock, which alone is compared with it."""
