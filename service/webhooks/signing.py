"""Signatures of webhooks, as Standard Webhooks has them. Pure.

A webhook's secret is derived from the service's key and the webhook's id, and kept nowhere: whoever reads the database
can sign nothing.

Source: https://www.standardwebhooks.com, specification 1.0, symmetric signatures (`v1`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime

SECRET_PREFIX = "whsec_"  # noqa: S105 - how every such secret begins
WEBHOOK_ID_PATTERN = r"^[0-9a-f]{16}$"


def new_webhook_id() -> str:
    """64 random bits: a name, and no secret."""
    return secrets.token_hex(8)


def webhook_secret(key: str, webhook_id: str) -> str:
    """The secret of a webhook as its owner gets it: `whsec_` and 32 bytes in base64."""
    derived = hmac.digest(key.encode(), f"electra webhook {webhook_id}".encode(), "sha256")
    return SECRET_PREFIX + base64.b64encode(derived).decode()


def key_fingerprint(key: str) -> str:
    """Tells one key of the service from another, and tells nothing of it."""
    return hmac.new(key.encode(), b"electra webhook fingerprint", hashlib.sha256).hexdigest()[:16]


def signed_headers(secret: str, delivery_id: str, at: datetime, body: bytes) -> Mapping[str, str]:
    """The headers by which a receiver knows that a message is ours, whole and fresh."""
    timestamp = str(int(at.timestamp()))
    shared = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.digest(shared, b".".join((delivery_id.encode(), timestamp.encode(), body)), "sha256")
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
