"""Headers that tell browsers how little they may do with an answer.

Source: OWASP Secure Headers Project; RFC 6797 (Strict-Transport-Security).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HSTS_SECONDS = 365 * 24 * 3600
_API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_CDN = "https://cdn.jsdelivr.net"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Of our own page: its scripts and styles are files of this service, and text never becomes HTML or a script, which
browsers that know trusted types hold it to."""


def security_headers(tls_upstream: bool) -> Mapping[str, str]:
    """Of every answer; a route may set its own instead."""
    headers = {
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Content-Security-Policy": _API_POLICY,
        "Cache-Control": "no-store",
    }
    if tls_upstream:
        headers["Strict-Transport-Security"] = f"max-age={_HSTS_SECONDS}; includeSubDomains"
    return headers


def policy_of_page(html: str) -> str:
    """Content security policy of one of FastAPI's pages: its own scripts by their hashes, and those of its CDN."""
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return (
        f"default-src 'none'; script-src {_CDN} {hashes}; style-src {_CDN} 'unsafe-inline'; "
        "img-src 'self' data: https://fastapi.tiangolo.com; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


class SecurityHeaders:
    """Adds the headers to every answer that passes."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str], pages: Mapping[str, str]) -> None:
        """`pages`: path to the policy of an HTML page."""
        self._app = app
        self._headers = headers
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["path"] in self._pages:
                    headers.setdefault("Content-Security-Policy", self._pages[scope["path"]])
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
