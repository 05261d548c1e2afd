"""`electra migrate`: the database brought to the form this version needs, before the service starts on it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.console import FAILED, JsonOption, check_installed, stderr, stdout
from service.cli.environment import read_settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

_NEEDED = ("alembic", "sqlalchemy")
_RETRY_SECONDS = 2.0


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 when the database is not of this version.")
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0, max=3600, help="Seconds to wait for a database that does not answer yet.")
    ] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Bring the database of ELECTRA_DATABASE_URL to the form of this version. May be run again, and side by side."""
    check_installed("Migrating", _NEEDED)
    settings = read_settings()
    from sqlalchemy.exc import SQLAlchemyError

    from service.ledger.database import make_engine, upgrade_database
    from service.ledger.versions import database_revision, is_newer, newest_revision

    try:
        engine = make_engine(settings.database_url)
        before, newest = _wait_for(engine, wait), newest_revision()
        if not check and before != newest and not is_newer(before):
            upgrade_database(engine)
        after = database_revision(engine)
        engine.dispose()
    # A driver that is not installed says so by an ImportError, and alembic's own words are for programmers.
    except (SQLAlchemyError, ImportError) as error:
        cause = getattr(error, "orig", None) or error
        stderr().print(f"The database cannot be used: {str(cause).strip()}", markup=False, soft_wrap=True)
        raise typer.Exit(FAILED) from error
    if is_newer(after):
        message = f"The database is of a later version ({after}) than this one ({newest}); it was left as it is."
        stderr().print(message, markup=False, soft_wrap=True)
        raise typer.Exit(FAILED)
    if as_json:
        typer.echo(json.dumps({"before": before, "after": after, "newest": newest}))
    else:
        stdout().print(f"database: {before or 'empty'} -> {after or 'empty'}, this version: {newest}", markup=False)
    if after != newest:
        raise typer.Exit(FAILED)


def _wait_for(engine: Engine, seconds: float) -> str | None:
    """The database's revision, asked for again while nobody answers and there is time."""
    from sqlalchemy.exc import OperationalError

    from service.ledger.versions import database_revision

    deadline = time.monotonic() + seconds
    while True:
        try:
            return database_revision(engine)
        except OperationalError as error:
            if time.monotonic() >= deadline:
                raise
            stderr().print(f"Waiting for the database: {str(error.orig).strip()}", markup=False, soft_wrap=True)
            time.sleep(_RETRY_SECONDS)
