"""OIDC bearer tokens: signature, issuer, audience and times are checked with the keys that the issuer publishes.

Source: OpenID Connect Discovery 1.0; RFC 7519; RFC 8725 (best current practice for JWTs).
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import structlog
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from service.access.addresses import is_loopback
from service.access.claims import principal_of
from service.access.principals import Principal
from service.errors import IdentityProviderUnavailableError
from service.settings import Settings

log = structlog.get_logger(__name__)

MAX_TOKEN_CHARACTERS = 16_384
MAX_DOCUMENT_BYTES = 512 * 1024
KEYS_FRESH_SECONDS = 3600.0
"""So long keys are used without asking again."""
KEYS_STALE_SECONDS = 24 * 3600.0
"""So long they are used while the issuer does not answer."""
REFRESH_PAUSE_SECONDS = 60.0
"""Between two questions to the issuer, whatever tokens say: anybody can make up a key's name."""
_TIMEOUT_SECONDS = 5.0
_DISCOVERY = "/.well-known/openid-configuration"


class InvalidTokenError(Exception):
    """The token is not one of ours; the message says why, to the log alone."""


class TokenVerifier:
    """Recognises the tokens of one issuer."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`clock` paces questions to the issuer, `now` is held against the times in tokens; both in seconds."""
        assert settings.oidc_issuer is not None
        assert settings.oidc_audience is not None
        self._settings = settings
        self._issuer: str = settings.oidc_issuer
        self._clock = clock
        self._claims = jwt.JWTClaimsRegistry(
            now=lambda: int(now()),
            leeway=settings.oidc_leeway_seconds,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": settings.oidc_audience},
            exp={"essential": True},
        )
        self._fetching = threading.Lock()
        """Held while the issuer is asked. Nobody waits for it: those who would are as many threads as the service has,
        and anybody can make up tokens."""
        self._keys: KeySet | None = None
        self._fetched_at = self._asked_at = float("-inf")

    def principal(self, token: str) -> Principal:
        """Who a token speaks for.

        Raises:
            InvalidTokenError: it is no token of the issuer for us, now.
            IdentityProviderUnavailableError: the issuer's keys are not known.
        """
        header = _header(token)
        if header.get("alg") not in self._settings.oidc_algorithms:
            raise InvalidTokenError(f"its algorithm is {header.get('alg')!r}")
        if "crit" in header:
            raise InvalidTokenError("it demands extensions")
        keys = self._keys_for(header.get("kid"))
        try:
            decoded = jwt.decode(token, keys, algorithms=list(self._settings.oidc_algorithms))
            self._claims.validate(decoded.claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise InvalidTokenError(type(error).__name__) from error
        settings = self._settings
        found = principal_of(decoded.claims, settings.oidc_user_claim, settings.oidc_groups_claim, settings.oidc_grants)
        if found is None:
            raise InvalidTokenError(f"its claim {settings.oidc_user_claim} is no name")
        return found

    def _keys_for(self, kid: object) -> KeySet:
        """The one key of that name; the only key there is, where the token names none."""
        found = self._named(kid)
        if found is None or self._age() > KEYS_FRESH_SECONDS:
            if self._fetching.acquire(blocking=False):
                try:
                    if self._clock() - self._asked_at >= REFRESH_PAUSE_SECONDS:
                        self._refresh()
                finally:
                    self._fetching.release()
            elif found is None:
                raise IdentityProviderUnavailableError("The issuer of tokens is being asked for its keys. Try again.")
            found = self._named(kid)
        if self._keys is None or self._age() > KEYS_STALE_SECONDS:
            raise IdentityProviderUnavailableError("The issuer of tokens does not answer. Try again in a minute.")
        if found is None:
            raise InvalidTokenError("the issuer has no key of its name")
        return found

    def _age(self) -> float:
        return self._clock() - self._fetched_at

    def _named(self, kid: object) -> KeySet | None:
        keys = [] if self._keys is None else list(self._keys.keys)
        if kid is None:
            return KeySet(keys) if len(keys) == 1 else None
        found = [key for key in keys if key.kid == kid]
        return KeySet(found) if found else None

    def _refresh(self) -> None:
        self._asked_at = self._clock()
        try:
            with httpx.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=False, trust_env=False) as client:
                told = _fetch(client, self._keys_uri(_fetch(client, self._issuer.rstrip("/") + _DISCOVERY)))
            self._keys = _public_keys(told)
            self._fetched_at = self._clock()
            log.info("oidc_keys_fetched", issuer=self._issuer, num_keys=len(self._keys.keys))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError, AttributeError, KeyError, JoseError) as error:
            log.warning("oidc_keys_not_fetched", issuer=self._issuer, reason=str(error)[:300])

    def _keys_uri(self, about: Mapping[str, Any]) -> str:
        if about.get("issuer") != self._issuer:
            raise ValueError(f"its discovery document is of {str(about.get('issuer'))[:200]!r}")
        uri = str(about.get("jwks_uri", ""))
        parts = urlsplit(uri)
        is_local = is_loopback(urlsplit(self._issuer).hostname or "") and is_loopback(parts.hostname or "")
        if parts.scheme != "https" and not is_local:
            raise ValueError(f"jwks_uri must start with https://, got {uri[:200]!r}")
        return uri


def _public_keys(told: Mapping[str, Any]) -> KeySet:
    keys = [key for one in told.get("keys", []) if (key := _public_key(one)) is not None]
    if not keys:
        raise ValueError("it has no key that signs tokens")
    return KeySet(keys)


def _public_key(told: Mapping[str, Any]) -> Key | None:
    """A key that checks signatures; None of another, of which an issuer may have any."""
    # Halves that sign, and keys that both sides share, have no business here.
    if told.get("kty") not in ("RSA", "EC", "OKP") or "d" in told or told.get("use", "sig") != "sig":
        return None
    try:
        return JWKRegistry.import_key(dict(told))
    except (JoseError, ValueError, TypeError, KeyError) as error:
        log.info("oidc_key_passed_over", kid=str(told.get("kid"))[:100], reason=type(error).__name__)
        return None


def _fetch(client: httpx.Client, url: str) -> Mapping[str, Any]:
    body = bytearray()
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    with client.stream("GET", url, headers={"Accept": "application/json"}) as answer:
        if answer.status_code != httpx.codes.OK:
            raise ValueError(f"{url} answered {answer.status_code}")
        for part in answer.iter_bytes():
            body += part
            if len(body) > MAX_DOCUMENT_BYTES or time.monotonic() > deadline:
                raise ValueError(f"{url} is too long or too slow")
    told = json.loads(body)
    if not isinstance(told, dict):
        raise TypeError(f"{url} is no JSON object")
    return told


def _header(token: str) -> Mapping[str, Any]:
    if len(token) > MAX_TOKEN_CHARACTERS or token.count(".") != 2:
        raise InvalidTokenError("it is no signed token")
    part = token.partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError) as error:
        raise InvalidTokenError("its header cannot be read") from error
    if not isinstance(header, dict):
        raise InvalidTokenError("its header is no object")
    return header
