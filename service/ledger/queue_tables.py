"""The tables of the queue beside `jobs`: quotas that differ from the settings', and what owners have used."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Float, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from service.ledger.tables import Base, UtcDateTime


class QuotaRow(Base):
    """`service.queueing.records.QuotaException`. A limit that is absent is none."""

    __tablename__ = "quotas"

    scope: Mapped[str] = mapped_column(String(10), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    max_running_jobs: Mapped[int | None] = mapped_column(Integer)
    max_cpus: Mapped[float | None] = mapped_column(Float)
    max_gpus: Mapped[int | None] = mapped_column(Integer)
    set_at: Mapped[datetime] = mapped_column(UtcDateTime)
    set_by: Mapped[str] = mapped_column(String(250))


class OwnerUsageRow(Base):
    """`service.queueing.shares.Usage`, as of a moment."""

    __tablename__ = "owner_usage"

    owner: Mapped[str] = mapped_column(String(200), primary_key=True)
    cpu_seconds: Mapped[float] = mapped_column(Float)
    gpu_seconds: Mapped[float] = mapped_column(Float)
    as_of: Mapped[datetime] = mapped_column(UtcDateTime)
