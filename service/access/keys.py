"""API keys: `elk_<id>_<secret>`. Pure but for the random numbers.

Of a key only the SHA-256 of its secret is kept. That is enough, and a slow hash would add nothing: the secret is 256
random bits and no password that could be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime

from service.access.principals import ALL_PROJECTS, DEFAULT_PROJECT, Permission, Principal, Role

KEY_PREFIX = "elk_"
_KEY = re.compile(r"elk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
KEY_ID_PATTERN = r"^[0-9a-f]{16}$"
_SECRET_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key as it is kept: everything but the secret."""

    key_id: str
    secret_sha256: str
    """Hexadecimal."""
    name: str
    """What it is for."""
    owner: str
    project: str | None
    """None: all projects."""
    role: Role
    scopes: frozenset[Permission]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    """To the minute."""

    def principal(self) -> Principal:
        """Who shows it."""
        return Principal(
            owner=self.owner,
            roles={self.project or ALL_PROJECTS: self.role},
            scopes=self.scopes,
            method="key",
            key_id=self.key_id,
            project=self.project or DEFAULT_PROJECT,
        )


def new_secret() -> str:
    """256 random bits in letters, digits, `-` and `_`."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def new_key_id() -> str:
    """64 random bits: a name, and no secret."""
    return secrets.token_hex(8)


def written(key_id: str, secret: str) -> str:
    """The key as its holder gets it, once."""
    return f"{KEY_PREFIX}{key_id}_{secret}"


def parse_key(text: str) -> tuple[str, str] | None:
    """Id and secret; None where it is no key."""
    found = _KEY.fullmatch(text)
    return None if found is None else (found[1], found[2])


def hash_secret(secret: str) -> str:
    """What is kept of it."""
    return hashlib.sha256(secret.encode()).hexdigest()


_NO_HASH = hash_secret("")


def is_secret_of(key: ApiKey | None, secret: str) -> bool:
    """Whether the secret belongs to the key, in the same time whether there is such a key or not."""
    kept = _NO_HASH if key is None else key.secret_sha256
    return hmac.compare_digest(kept, hash_secret(secret)) and key is not None
