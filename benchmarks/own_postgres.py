"""A PostgreSQL that can be killed and started again, from the wheel `pgserver` or this machine's path."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

_SUPERUSER = "postgres"
_UNPRIVILEGED = "nobody"
"""The server refuses to run as root, and there is such a user everywhere."""


class OwnPostgres:
    """A server on a Unix socket alone, in a folder of its own, with the settings it comes with; `with` starts it and
    removes it. It syncs its disk, so that it can be killed.
    """

    def __init__(self) -> None:
        """Raises:
        SystemExit: there is no server to be had.
        """
        self._programs = _programs()
        # A short path, for a Unix socket's is short; and another user has to reach it.
        self.home = Path(tempfile.mkdtemp(prefix="electra-pg-"))
        self._user = _UNPRIVILEGED if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.home, self._user)
        self._data = self.home / "data"
        arguments = ("-D", str(self._data), "-U", _SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self._run("initdb", *arguments)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def url(self) -> str:
        """As `ELECTRA_DATABASE_URL`."""
        return f"postgresql+psycopg://{_SUPERUSER}@/postgres?host={self.home}"

    def start(self) -> None:
        """Start, and return when it takes connections."""
        options = f"-c listen_addresses= -k {self.home}"
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", str(self.home / "log"), "-o", options, "start")

    def kill(self) -> None:
        """End it at once, without a last write: the next start recovers from its log."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        """End it, and delete its folder."""
        subprocess.run(
            [str(self._programs / "pg_ctl"), "-D", str(self._data), "-w", "-m", "immediate", "stop"],
            user=self._user,
            cwd=self.home,
            env=self._environment(),
            capture_output=True,
            check=False,
        )
        shutil.rmtree(self.home, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            user=self._user,
            cwd=self.home,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the server inherits it: a pipe would never end
            stderr=subprocess.PIPE,
            text=True,
            timeout=400,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{program} failed: {done.stderr}")

    def _environment(self) -> dict[str, str]:
        return {"PATH": f"{self._programs}:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _programs() -> Path:
    """The folder of `initdb` and `pg_ctl`."""
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    found = shutil.which("initdb")
    if found is None:
        raise SystemExit("this benchmark needs PostgreSQL: pip install pgserver")
    return Path(found).resolve().parent
