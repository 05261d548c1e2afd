"""The first key: made in the database, by whoever may write there anyway. It is also the way back in."""

from __future__ import annotations

from service.access.principals import Permission, Role
from service.cli.console import InputError, check_installed
from service.cli.environment import read_settings


def make_key_in_database(
    name: str,
    owner: str,
    project: str | None,
    role: Role,
    scopes: frozenset[Permission],
    lifetime_days: int | None,
) -> tuple[str, str]:
    """Make a key past the service, as its settings say where the database is.

    Returns:
        The key's id, and the key.

    Raises:
        InputError: a setting is wrong, there is no such project, or the service's packages are not installed.
    """
    check_installed("Making a key in the database", ("sqlalchemy", "alembic", "joserfc"))
    from service.access.access import Access
    from service.access.audit import Caller
    from service.access.principals import ALL_PROJECTS, Principal
    from service.errors import ServiceError
    from service.ledger.access_store import SqlAccessStore
    from service.ledger.database import make_engine, upgrade_database

    settings = read_settings()
    engine = make_engine(settings.database_url)
    try:
        upgrade_database(engine)
        maker = Principal(owner="bootstrap", roles={ALL_PROJECTS: Role.ADMIN}, method="open")
        access = Access(settings, SqlAccessStore(engine))
        key, text = access.create_key(
            Caller(maker),
            name=name,
            owner=owner,
            project=project,
            role=role,
            scopes=scopes,
            lifetime_days=lifetime_days,
        )
    except ServiceError as error:
        raise InputError(error.detail) from error
    finally:
        engine.dispose()
    return key.key_id, text
