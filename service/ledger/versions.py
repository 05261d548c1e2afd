"""Which form of the tables a database has, and which one this version of the service needs."""

from __future__ import annotations

from pathlib import Path

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine


def database_revision(engine: Engine) -> str | None:
    """The last migration that was made; None in an empty database.

    Raises:
        sqlalchemy.exc.OperationalError: the database does not answer.
    """
    with engine.connect() as connection:
        return connected_revision(connection)


def connected_revision(connection: Connection) -> str | None:
    """The same, inside a transaction."""
    return MigrationContext.configure(connection).get_current_revision()


def newest_revision() -> str | None:
    """The last migration there is."""
    return _migrations().get_current_head()


def is_newer(revision: str | None) -> bool:
    """Whether a later version of the service made this migration: it is none of ours."""
    return revision is not None and revision not in {script.revision for script in _migrations().walk_revisions()}


def _migrations() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).parent / "migrations"))
