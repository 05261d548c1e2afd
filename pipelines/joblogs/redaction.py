"""Secrets of the environment, taken out of what is logged."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

REDACTED = "[redacted]"
_NAMES_SECRETS = re.compile(
    r"SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|PRIVATE_KEY|API_?KEY|ACCESS_KEY|CREDENTIAL|(^|_)(AUTH|PAT|DSN|KEY)$"
)
_NAMES_NO_SECRETS = re.compile(r"(PATH|FILE|DIR|MODE|PARALLELISM|EXPIRATION|_URI|_URL|_ENDPOINT)$")
_SHORTEST = 6
"""Shorter values are words such as `token` and `true`, and stand in half of all lines."""
_USER_INFO = re.compile(r"(?<=://)[^\s/@:]{0,200}:[^\s/@]{1,500}(?=@)")
_BEARER = re.compile(r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}")


def redactor(environment: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """A function that takes out of a text the values of variables whose names say that they are secret, users and
    passwords in URLs, and authorization headers.
    """
    values = tuple(sorted(_secrets(os.environ if environment is None else environment), key=len, reverse=True))
    return _redactor_of(values)


@lru_cache(maxsize=8)
def _redactor_of(values: tuple[str, ...]) -> Callable[[str], str]:
    known = re.compile("|".join(map(re.escape, values))) if values else None

    def redact(text: str) -> str:
        if known is not None:
            text = known.sub(REDACTED, text)
        if "://" in text:
            text = _USER_INFO.sub(REDACTED, text)
        return _BEARER.sub(rf"\1 {REDACTED}", text)

    return redact


def _secrets(environment: Mapping[str, str]) -> set[str]:
    found = set()
    for name, value in environment.items():
        upper = name.upper()
        if _NAMES_SECRETS.search(upper) and not _NAMES_NO_SECRETS.search(upper):
            # Each line of a key of many lines: what is printed comes line by line.
            found |= {part for part in (value.strip(), *value.split()) if len(part) >= _SHORTEST}
    return found
