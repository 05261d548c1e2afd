"""Keys and `models:write`: those of before, narrow ones, and what replicas of the version before can read."""

from __future__ import annotations

import threading

import pytest
from service_doubles import START
from sqlalchemy import Engine, text

from service.access.audit import local_caller
from service.access.keys import ApiKey
from service.access.principals import ALL_SCOPES, Permission, Role
from service.ledger.access_store import SqlAccessStore
from service.ledger.locks import SqlLocks


def kept(engine: Engine, scopes: frozenset[Permission]) -> str:
    """A key with these scopes, as the database has them."""
    key = ApiKey(
        key_id="0" * 16,
        secret_sha256="0" * 64,
        name="k",
        owner="ada",
        project=None,
        role=Role.ADMIN,
        scopes=scopes,
        created_at=START,
        created_by="root",
        expires_at=None,
    )
    SqlAccessStore(engine).insert_key(key, local_caller().entry("key.create", key.key_id, None))
    with engine.connect() as connection:
        return str(connection.scalar(text("SELECT scopes FROM api_keys")))


@pytest.mark.parametrize(
    "scopes",
    [
        ALL_SCOPES,
        frozenset({Permission.MODELS_WRITE}),
        frozenset({Permission.JOBS_READ}),
        ALL_SCOPES - {Permission.ADMIN},
    ],
    ids=len,
)
def test_scopes_come_back_as_they_were_given(engine: Engine, scopes: frozenset[Permission]) -> None:
    kept(engine, scopes)
    found = SqlAccessStore(engine).find_key("0" * 16)
    assert found is not None
    assert found.scopes == scopes


def test_a_key_of_before_that_could_do_all_can_do_all(engine: Engine) -> None:
    """And what is written down of such a key has no word that the version before does not know."""
    assert kept(engine, ALL_SCOPES) == "admin jobs:read jobs:write metrics:read models:read"


def test_a_lock_has_one_holder_at_a_time(engine: Engine) -> None:
    most, inside, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal most, inside
        with SqlLocks(engine).holding("m", 60.0) as is_held:
            assert is_held
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    with SqlLocks(engine).holding("m", 0.0) as first, SqlLocks(engine).holding("m", 0.0) as second:
        assert (first, second) == (True, False)
