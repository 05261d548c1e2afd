"""What jobs have taken of the cluster: the tables of `ledger/usage.py`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Double, ForeignKey, Index, Integer, text
from sqlalchemy.orm import Mapped, mapped_column

from service.ledger.tables import Base


class JobAttemptRow(Base):
    """From when an attempt of a job was first seen to run to when it was seen to be over.

    Moments are milliseconds since 1970: every database can subtract them, and sums of whole numbers are exact.
    """

    __tablename__ = "job_attempts"
    __table_args__ = (Index(None, "ended_ms"), Index(None, "started_ms"))

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    started_ms: Mapped[int] = mapped_column(BigInteger)
    ended_ms: Mapped[int | None] = mapped_column(BigInteger)
    """NULL while it runs."""


class JobWorkRow(Base):
    """What a job's workers hold, and what it has computed so far."""

    __tablename__ = "job_work"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id", ondelete="CASCADE"), primary_key=True)
    num_millicpus: Mapped[int] = mapped_column(BigInteger)
    num_gpus: Mapped[int] = mapped_column(Integer)
    tokens: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    flops: Mapped[float] = mapped_column(Double, server_default=text("0"))
