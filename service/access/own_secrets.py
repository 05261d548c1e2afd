"""Secrets that the service makes for itself, each in a file that only its user can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def own_secret(path: Path) -> str:
    """The secret of a file, made with it where there is none; two processes that make it at once have the same.

    Raises:
        OSError: the file cannot be read or made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and linked to its name: whoever reads finds the whole of it or nothing.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        pass  # another process was quicker: its secret is the one
    finally:
        temporary.unlink()
    return path.read_text(encoding="ascii").strip()
