"""A real PostgreSQL for tests: from the wheel `pgserver`, or else from this machine's path."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

SUPERUSER = "postgres"
# The server refuses to run as root, and there is such a user everywhere.
_UNPRIVILEGED = "nobody"


def binaries() -> Path:
    """The folder of `initdb` and `pg_ctl`. Skips the test where there is none."""
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("needs psycopg: pip install 'electra-pretraining[dev]'")
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    found = shutil.which("initdb")
    if found is None:
        pytest.skip("needs PostgreSQL: pip install pgserver")
    return Path(found).resolve().parent


@contextmanager
def postgres_server() -> Iterator[str]:
    """A server that listens on a Unix socket alone; the URL of its superuser, with `{database}` in it.

    One that is there already is named so by `ELECTRA_TEST_POSTGRES`.
    """
    if given := os.environ.get("ELECTRA_TEST_POSTGRES"):
        yield given
        return
    folder = binaries()
    # Not pytest's own folder: the path of a Unix socket is short, and another user has to reach it.
    with tempfile.TemporaryDirectory(prefix="electra-pg-") as name:
        home = Path(name)
        user = _UNPRIVILEGED if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(home, user)

        def run(program: str, *arguments: str) -> None:
            command = [str(folder / program), *arguments]
            done = subprocess.run(
                command,
                user=user,
                cwd=home,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=400,
            )
            assert done.returncode == 0, done.stderr

        data = home / "data"
        run("initdb", "-D", str(data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        # As safe as any for a server that is thrown away, and tests wait for no disk.
        options = f"-c listen_addresses= -k {home} -c fsync=off -c timezone=Asia/Kolkata"
        run("pg_ctl", "-D", str(data), "-w", "-l", str(home / "log"), "-o", options, "start")
        try:
            yield f"postgresql+psycopg://{SUPERUSER}@/{{database}}?host={home}"
        finally:
            run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """A database of one's own on a server of `postgres_server`; its URL."""
    name = f"test_{uuid.uuid4().hex}"
    engine = create_engine(server.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.format(database=name)
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
