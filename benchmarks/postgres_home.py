"""A PostgreSQL of one's own, from the wheel `pgserver` or from this machine's path."""

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

from sqlalchemy import create_engine, text

_UNPRIVILEGED = "nobody"
"""The server refuses to run as root, and there is such a user everywhere."""
_SUPERUSER = "postgres"
_START_SECONDS = 300


@contextmanager
def postgres_server() -> Iterator[str]:
    """A server on a Unix socket alone, with the settings it comes with; its URL, with `{database}` in it."""
    folder = _binaries()
    # A short path, which a socket needs, and one that another user can reach.
    with tempfile.TemporaryDirectory(prefix="electra-pg-") as name:
        home = Path(name)
        user = _UNPRIVILEGED if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(home, user)

        def run(program: str, *arguments: str) -> None:
            subprocess.run(
                [str(folder / program), *arguments],
                user=user,
                cwd=home,
                env={"PATH": f"{folder}:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                timeout=_START_SECONDS,
            )

        data = str(home / "data")
        run("initdb", "-D", data, "-U", _SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-locale")
        options = f"-c listen_addresses= -k {home}"
        run("pg_ctl", "-D", data, "-w", "-l", str(home / "log"), "-o", options, "start")
        try:
            yield f"postgresql+psycopg://{_SUPERUSER}@/{{database}}?host={home}"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


def new_database(server: str) -> str:
    """An empty database on a server; its URL. It goes with the server."""
    name = f"bench_{uuid.uuid4().hex}"
    engine = create_engine(server.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.format(database=name)


def _binaries() -> Path:
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    found = shutil.which("initdb")
    if found is None:
        raise SystemExit("needs PostgreSQL: pip install pgserver")
    return Path(found).resolve().parent
