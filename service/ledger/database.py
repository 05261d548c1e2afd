"""The database: SQLite for one machine, PostgreSQL for a team, and how it comes to its newest form."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import structlog
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFreeError

from service.ledger.versions import connected_revision, is_newer

log = structlog.get_logger(__name__)

BUSY_TIMEOUT_SECONDS = 15
_MIGRATION_SECONDS = 3600
_MIGRATION_LOCK = 0x656C6563747261  # "electra": one number for all our processes on a PostgreSQL server

# A server that is gone without a word is given up after seconds. libpq waits two minutes to connect, and a quarter of
# an hour for an answer, in which no replica would hold the lease.
_CONNECTION_PATIENCE: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": BUSY_TIMEOUT_SECONDS * 1000,
}

DATABASE_FAULTS = (OperationalError, InterfaceError, NoConnectionFreeError)
"""What is raised where a database is gone, restarts, is full or locked; `is_away` says whether that is what it was."""


def is_away(error: Exception) -> bool:
    """Whether an error says that the database does not answer or takes no write now: no fault of the statement's.

    SQLite calls a table that is not there an operational error too.
    """
    if not isinstance(error, DATABASE_FAULTS):
        return False
    cause = getattr(error, "orig", None)
    return getattr(cause, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR


def make_engine(database_url: str, *, pool_size: int | None = None) -> Engine:
    """An engine; for SQLite also the folder of its file, and the settings that let threads share it.

    Args:
        database_url: SQLAlchemy's.
        pool_size: connections at most; SQLAlchemy's own number when absent.
    """
    pool: dict[str, Any] = {} if pool_size is None else {"pool_size": pool_size, "max_overflow": 0}
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        if url.get_backend_name() != "postgresql":
            return create_engine(url, pool_pre_ping=True, **pool)
        patience = {name: value for name, value in _CONNECTION_PATIENCE.items() if name not in url.query}
        engine = create_engine(url, pool_pre_ping=True, connect_args=patience, **pool)
        event.listen(engine, "connect", _bound_waits)
        return engine
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_SECONDS}, **pool)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")  # readers and the writer do not wait for each other
        cursor.execute("PRAGMA synchronous=FULL")  # a job once accepted survives a power cut
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    return engine


def _bound_waits(connection: Any, _record: object) -> None:
    """A replica that freezes within a transaction holds its locks, the counter of events among them: the server ends
    it, so that the others wait for seconds and not for ever.
    """
    cursor = connection.cursor()
    for name in ("idle_in_transaction_session_timeout", "lock_timeout"):
        cursor.execute(f"SET {name} = '{BUSY_TIMEOUT_SECONDS}s'")
    cursor.close()
    connection.commit()


def migrations_config() -> Config:
    """Where the migrations lie."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def upgrade_database(engine: Engine) -> None:
    """Bring the tables to the newest form, from nothing or from any older one.

    Those of a later version are left as they are: migrations only add, so that an upgrade can be taken back, and
    replicas of the version before can start while it is made.
    """
    config = migrations_config()
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # Replicas that start side by side upgrade one after the other, and wait for it as long as it takes.
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        elif connection.dialect.name == "sqlite":
            # Here too whoever comes second waits as long as it takes.
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_MIGRATION_SECONDS * 1000}")
            # Python's driver begins no transaction before DDL: whoever is killed would leave half of a migration.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_SECONDS * 1000}")
        revision = connected_revision(connection)
        if is_newer(revision):
            log.warning("database_is_newer", revision=revision)
            return
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
