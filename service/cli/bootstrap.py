"""The first key: made in the database, by whoever may write there anyway. It is also the way back in."""

from __future__ import annotations

from service.cli.console import InputError, check_installed, stderr
from service.cli.environment import read_settings
from service.http.access_schemas import KeyCreate, KeyCreated


def make_key_in_database(asked: KeyCreate) -> KeyCreated:
    """Make a key past the service, as its settings say where the database is.

    Raises:
        InputError: a setting is wrong, there is no such project, the service's packages are not installed, or the
            database cannot be used.
    """
    check_installed("Making a key in the database", ("sqlalchemy", "alembic", "joserfc"))
    from sqlalchemy.exc import SQLAlchemyError

    from service.access.access import Access
    from service.access.audit import Caller
    from service.access.principals import ALL_PROJECTS, Principal, Role
    from service.errors import ServiceError
    from service.ledger.access_store import SqlAccessStore
    from service.ledger.database import make_engine, upgrade_database

    settings = read_settings()
    try:
        engine = make_engine(settings.database_url)
    except (SQLAlchemyError, ImportError) as error:
        raise _unusable(error) from error
    # A service of other settings would not know the key, and nothing else would say why.
    place = engine.url.render_as_string(hide_password=True)
    stderr().print(f"Database: {place}", markup=False, soft_wrap=True)
    try:
        upgrade_database(engine)
        maker = Principal(owner="bootstrap", roles={ALL_PROJECTS: Role.ADMIN}, method="open")
        access = Access(settings, SqlAccessStore(engine))
        key, text = access.create_key(
            Caller(maker),
            name=asked.name,
            owner=asked.owner,
            project=asked.project,
            role=asked.role,
            scopes=asked.scopes,
            lifetime_days=asked.lifetime_days,
        )
    except ServiceError as error:
        raise InputError(error.detail) from error
    except SQLAlchemyError as error:
        raise _unusable(error) from error
    finally:
        engine.dispose()
    return KeyCreated.made(key, text)


def _unusable(error: Exception) -> InputError:
    # The driver's words alone: SQLAlchemy's own repeat the statement and what was to be written.
    return InputError(f"The database cannot be used: {str(getattr(error, 'orig', None) or error).strip()}")
