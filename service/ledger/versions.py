"""Which form of the tables a database has, and which one this version of the service needs."""

from __future__ import annotations

from pathlib import Path

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine


def database_revision(engine: Engine) -> str | None:
    """The last migration that was made; None in an empty database.

    Raises:
        sqlalchemy.exc.OperationalError: the database does not answer.
    """
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest_revision() -> str | None:
    """The last migration there is."""
    return ScriptDirectory(str(Path(__file__).parent / "migrations")).get_current_head()
