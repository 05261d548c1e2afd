"""`{home}/stack.json`: where a running stack is, for the commands that talk to it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter, ValidationError

from service.local.errors import AlreadyRunningError

STATE_FILE = "stack.json"
_LOCK_FILE = "stack.lock"
_PORTS_FILE = "ports.json"
_PORTS = TypeAdapter(dict[str, int])


class StackState(BaseModel):
    """Addresses and processes of a running stack."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    stack_id: str
    """Stands in the environment of every process of the stack."""
    pid: int
    """The supervisor: a SIGTERM stops the whole stack."""
    started_at: AwareDatetime
    service_url: str
    mlflow_url: str
    ray_url: str
    """Ray's dashboard, which takes jobs."""
    ray_token_path: str
    storage_uri: str
    component_pids: dict[str, int] = {}


def default_home() -> Path:
    """`$ELECTRA_HOME`, or `~/.electra`."""
    return Path(os.environ.get("ELECTRA_HOME") or "~/.electra").expanduser().absolute()


def read_state(home: Path) -> StackState | None:
    """The stack that runs with this home; None when none does."""
    state = read_left_state(home)
    if state is None:
        return None
    try:
        os.kill(state.pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it runs, as someone else
    return state


def read_left_state(home: Path) -> StackState | None:
    """What the file says, whether or not that stack still runs."""
    try:
        return StackState.model_validate_json((home / STATE_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_state(home: Path, state: StackState) -> None:
    """Replace the file in one step: a reader never sees half of it."""
    temporary = home / f"{STATE_FILE}.{os.getpid()}"
    temporary.write_text(state.model_dump_json(indent=2) + "\n", encoding="utf-8")
    temporary.replace(home / STATE_FILE)


def remove_state(home: Path) -> None:
    """The stack is gone."""
    (home / STATE_FILE).unlink(missing_ok=True)


def read_ports(home: Path) -> dict[str, int]:
    """The ports of the last stack here. Taking them again keeps links and open pages good."""
    try:
        return _PORTS.validate_json((home / _PORTS_FILE).read_bytes())
    except (OSError, ValidationError):
        return {}


def write_ports(home: Path, ports: dict[str, int]) -> None:
    """Keep them for the next stack."""
    (home / _PORTS_FILE).write_bytes(_PORTS.dump_json(ports) + b"\n")


def lock_home(home: Path) -> IO[bytes]:
    """Keep other stacks out of a home for as long as the file returned is open, even if we are killed.

    Raises:
        AlreadyRunningError: another stack holds it.
    """
    lock = (home / _LOCK_FILE).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        state = read_state(home)
        raise AlreadyRunningError(home, state.service_url if state else None) from error
    return lock
