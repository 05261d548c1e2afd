"""The key that the client sends: from the environment or a file of one's own, and never from the command line, where
every user of the machine could read it.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

KEY_VARIABLE = "ELECTRA_API_KEY"
FILE_VARIABLE = "ELECTRA_API_KEY_FILE"
_MAX_BYTES = 32_768
_SENDABLE = re.compile(r"[\x21-\x7e]+")


class CredentialsError(Exception):
    """There is a key, and it is not fit to be used; the message never holds it."""


def read_api_key() -> str | None:
    """The key of `ELECTRA_API_KEY`, or of the file that `ELECTRA_API_KEY_FILE` names; None where neither is set.

    Raises:
        CredentialsError: the file cannot be read, or others can read it; or it holds no key.
    """
    source, text = KEY_VARIABLE, os.environ.get(KEY_VARIABLE, "")
    path = os.environ.get(FILE_VARIABLE, "")
    if not text.strip() and path:
        source, text = f"the file of {FILE_VARIABLE}", _read(Path(path).expanduser())
    key = text.strip()
    if not key:
        return None
    if _SENDABLE.fullmatch(key) is None:
        raise CredentialsError(f"{source} must hold one key and nothing else")
    return key


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # Of the file that is open, not of whatever has its name by now.
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise CredentialsError(f"{FILE_VARIABLE} must name a file, got {path}")
            if stat.S_IMODE(about.st_mode) & 0o077:
                raise CredentialsError(
                    f"the file of {FILE_VARIABLE} must be closed to all but its owner, got mode "
                    f"{stat.S_IMODE(about.st_mode):04o}: run chmod 600 {path}"
                )
            return file.read(_MAX_BYTES).decode("ascii", errors="replace")
    except OSError as error:
        raise CredentialsError(f"{FILE_VARIABLE} names {path}, which cannot be read: {error.strerror}") from error
