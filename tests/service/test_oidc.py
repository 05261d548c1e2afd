"""Tokens of a real issuer on a real port: what is taken, and all that is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_world import keys_settings
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from live_service import serve_app
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from service.access.oidc import InvalidTokenError, TokenVerifier
from service.access.principals import Permission, Role
from service.errors import IdentityProviderUnavailableError

NOW = 1_800_000_000


class Issuer:
    """An OpenID Connect issuer with one key, of which it has told."""

    def __init__(self) -> None:
        self.key = ECKey.generate_key("P-256", {"kid": "one", "use": "sig"})
        self.told = [self.key]
        self.num_asked = 0
        self.is_down = False
        self.others: list[dict[str, str]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.url = ""
        self.claims_to_be: str | None = None

    def about(self, _: Any) -> JSONResponse:
        return JSONResponse({"issuer": self.claims_to_be or self.url, "jwks_uri": f"{self.url}/keys"})

    def keys(self, _: Any) -> JSONResponse:
        self.num_asked += 1
        self.may_answer.wait(30)
        public = [*self.others, *KeySet(self.told).as_dict(private=False)["keys"]]
        return JSONResponse({"keys": public}, status_code=503 if self.is_down else 200)

    def token(self, key: Any = None, algorithm: str = "ES256", kid: str | None = "one", **claims: Any) -> str:
        header = {"alg": algorithm} | ({} if kid is None else {"kid": kid})
        body = {"iss": self.url, "aud": "electra", "sub": "ada", "exp": NOW + 60, "groups": ["nlp"], **claims}
        body = {name: value for name, value in body.items() if value is not None}
        return jwt.encode(header, body, key or self.key, algorithms=[algorithm])


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    routes = [Route("/.well-known/openid-configuration", issuer.about), Route("/keys", issuer.keys)]
    with serve_app(Starlette(routes=routes)) as url:
        issuer.url = url
        yield issuer


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verifier(issuer: Issuer, tmp_path: Path, clock: Clock) -> TokenVerifier:
    grants = {"nlp": "clinical:member", "ops": "*:admin", "both": "clinical:viewer, law:admin"}
    settings = keys_settings(tmp_path, oidc_issuer=issuer.url, oidc_audience="electra", oidc_grants=grants)
    return TokenVerifier(settings, clock, lambda: NOW)


def test_a_token_speaks_for_its_user_in_the_projects_of_its_groups(issuer: Issuer, verifier: TokenVerifier) -> None:
    found = verifier.principal(issuer.token())
    assert (found.owner, dict(found.roles), found.project) == ("ada", {"clinical": Role.MEMBER}, "clinical")
    both = verifier.principal(issuer.token(groups=["both", "nlp", "unknown"]))
    assert dict(both.roles) == {"clinical": Role.MEMBER, "law": Role.ADMIN}
    assert both.project is None
    assert verifier.principal(issuer.token(groups="ops")).may_everywhere(Permission.ADMIN)


def test_a_user_of_no_group_may_do_nothing(issuer: Issuer, verifier: TokenVerifier) -> None:
    for groups in (None, [], ["unknown"], {"nlp": 1}, [["nlp"]]):
        assert not verifier.principal(issuer.token(groups=groups)).may_somewhere(Permission.JOBS_READ)


WRONG: dict[str, dict[str, Any]] = {
    "issuer": {"iss": "https://evil.example"},
    "no_issuer": {"iss": None},
    "audience": {"aud": "another-service"},
    "no_audience": {"aud": None},
    "expired": {"exp": NOW - 31},
    "no_expiry": {"exp": None},
    "expiry_is_text": {"exp": "never"},
    "not_yet": {"nbf": NOW + 31},
    "no_user": {"sub": None},
    "user_is_no_name": {"sub": "ada\nroot"},
    "unknown_key": {"kid": "two"},
    "another_algorithm": {"algorithm": "ES384", "key": ECKey.generate_key("P-384", {"kid": "one"})},
    "another_key_of_that_name": {"key": ECKey.generate_key("P-256", {"kid": "one"})},
    "shared_secret": {"algorithm": "HS256", "key": OctKey.import_key("electra" * 8)},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_token_that_is_wrong_in_one_thing_is_refused(
    issuer: Issuer, verifier: TokenVerifier, changes: dict[str, Any]
) -> None:
    with pytest.raises(InvalidTokenError):
        verifier.principal(issuer.token(**changes))
    assert verifier.principal(issuer.token()).owner == "ada"


def test_the_public_key_is_no_shared_secret(issuer: Issuer, verifier: TokenVerifier) -> None:
    """RFC 8725, 2.1: a token signed by HMAC with the issuer's public key as its secret."""
    body = issuer.token().split(".")[1]
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').rstrip(b"=").decode()
    made = hmac.new(issuer.key.as_pem(private=False), f"{header}.{body}".encode(), hashlib.sha256).digest()
    signature = base64.urlsafe_b64encode(made).rstrip(b"=").decode()
    with pytest.raises(InvalidTokenError, match="HS256"):
        verifier.principal(f"{header}.{body}.{signature}")


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c.d.e", "....", "e30.e30.", "eyJhbGciOiJub25lIn0.e30.", "x" * 20_000])
def test_what_is_no_signed_token_is_refused_before_the_issuer_is_asked(
    issuer: Issuer, verifier: TokenVerifier, text: str
) -> None:
    with pytest.raises(InvalidTokenError):
        verifier.principal(text)
    assert issuer.num_asked == 0


def test_clocks_may_differ_by_the_leeway(issuer: Issuer, verifier: TokenVerifier) -> None:
    assert verifier.principal(issuer.token(exp=NOW - 29, nbf=NOW + 29)).owner == "ada"


def test_a_new_key_of_the_issuer_is_found_and_made_up_ones_are_not_asked_for_again(
    issuer: Issuer, verifier: TokenVerifier, clock: Clock
) -> None:
    verifier.principal(issuer.token())
    new = RSAKey.generate_key(2048, {"kid": "two", "use": "sig"})
    issuer.told = [issuer.key, new]
    for number in range(20):
        with pytest.raises(InvalidTokenError):
            verifier.principal(issuer.token(kid=f"made-up-{number}"))
    assert issuer.num_asked == 1
    clock.time = 61
    assert verifier.principal(issuer.token(key=new, algorithm="RS256", kid="two")).owner == "ada"
    assert issuer.num_asked == 2


def test_keys_outlive_an_issuer_that_is_away_for_a_while(issuer: Issuer, verifier: TokenVerifier, clock: Clock) -> None:
    verifier.principal(issuer.token())
    issuer.is_down = True
    clock.time = 2 * 3600
    assert verifier.principal(issuer.token()).owner == "ada"
    clock.time = 25 * 3600
    with pytest.raises(IdentityProviderUnavailableError):
        verifier.principal(issuer.token())


def test_an_issuer_that_says_it_is_another_is_not_believed(issuer: Issuer, verifier: TokenVerifier) -> None:
    issuer.claims_to_be = "https://evil.example"
    with pytest.raises(IdentityProviderUnavailableError):
        verifier.principal(issuer.token())
    assert issuer.num_asked == 0


def test_a_key_that_cannot_be_read_does_not_hide_the_others(issuer: Issuer, verifier: TokenVerifier) -> None:
    issuer.others = [{"kty": "RSA", "kid": "torn"}, {"kty": "EC", "crv": "P-1", "x": "AA", "y": "AA", "kid": "odd"}]
    assert verifier.principal(issuer.token()).owner == "ada"
    with pytest.raises(InvalidTokenError):
        verifier.principal(issuer.token(kid="odd"))


def test_nobody_waits_for_keys_that_another_asks_for(issuer: Issuer, verifier: TokenVerifier, clock: Clock) -> None:
    """Tokens are checked by as many threads as the service has: made-up ones must not hold them all."""
    verifier.principal(issuer.token())
    clock.time = 61
    issuer.may_answer.clear()
    made_up = [issuer.token(kid=f"made-up-{number}") for number in range(2)]

    def ask() -> None:
        with pytest.raises(InvalidTokenError):
            verifier.principal(made_up[0])

    asking = threading.Thread(target=ask)
    asking.start()
    while issuer.num_asked < 2:
        time.sleep(0.01)
    assert verifier.principal(issuer.token()).owner == "ada"
    with pytest.raises(IdentityProviderUnavailableError):
        verifier.principal(made_up[1])
    issuer.may_answer.set()
    asking.join()
