"""What happens to every request before it reaches a route: it gets an id, a checked host and a body of bounded size."""

from __future__ import annotations

import ipaddress
import re
import time
import uuid
from collections.abc import Iterable

import anyio
import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.specs.prediction import MAX_REQUEST_BYTES, MAX_TOTAL_CHARACTERS
from service.access.escaping import escape
from service.errors import BodyTooLargeError, HostNotAllowedError, ServiceError
from service.http.desk import Desk
from service.http.problems import REQUEST_ID_KEY, problem_response

log = structlog.get_logger(__name__)

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_QUIET_PATHS = ("/healthz", "/readyz", "/metrics")
_JOB_PATH = re.compile(r"/v1/jobs/([a-z0-9][a-z0-9-]{0,62})(?:/.*)?")
_MAX_LOGGED_CHARACTERS = 200
_PREDICTION_ENDING = ":predict"
_DRAINED_BYTES = 16 * 1024 * 1024
_DRAIN_SECONDS = 5.0


class RequestContext:
    """Names each request, for its answer and for every line of the log that belongs to it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _SANE_REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope[REQUEST_ID_KEY] = request_id
        started_at, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        job = _JOB_PATH.fullmatch(scope["path"])
        if job is not None:
            structlog.contextvars.bind_contextvars(job_id=job[1])
        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            status = status or 500  # answered further out
            raise
        finally:
            seconds, route = time.perf_counter() - started_at, getattr(scope.get("route"), "path", None)
            _observe(scope, route, status, seconds)
            if scope["path"] not in _QUIET_PATHS or status >= 400:
                # The template, not what was asked for: that is the client's to write.
                what = {"route": route} if route else {"path": escape(scope["path"][:_MAX_LOGGED_CHARACTERS])}
                log.info("request", method=scope["method"], **what, status=status, seconds=round(seconds, 4))
            structlog.contextvars.clear_contextvars()


def _observe(scope: Scope, route: str | None, status: int, seconds: float) -> None:
    desk = getattr(scope["app"].state, "desk", None)
    if isinstance(desk, Desk):
        desk.metrics.observe_request(route, scope["method"], status, seconds)


class HostCheck:
    """Refuses requests meant for another host, or come in through an address that is not loopback.

    A web page can point a name of its own at 127.0.0.1 and have the reader's browser speak to this service; the
    name then stands in `Host`. And an ASGI server's own `--host` would pass the settings by.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str], serves_others: bool = False) -> None:
        """`serves_others`: the service asks for keys and stands behind TLS, so it may listen to other machines."""
        self._app = app
        self._serves_others = serves_others
        self._allowed = {host.lower() for host in (*LOCAL_HOSTS, *allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            host = re.sub(r":\d+$", "", Headers(scope=scope).get("host", "")).lower()
            error = None
            if host not in self._allowed:
                error = HostNotAllowedError(
                    f"This service is not {host[:100]!r}. Names besides localhost are given in ELECTRA_ALLOWED_HOSTS."
                )
            elif not self._serves_others and _is_open_address((scope.get("server") or ("",))[0]):
                error = HostNotAllowedError(
                    "Without ELECTRA_ACCESS=keys and ELECTRA_TLS_UPSTREAM=true only loopback addresses are served."
                )
            if error is not None:
                await problem_response(scope, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_open_address(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False  # a name or a Unix socket


class BodyLimit:
    """Reads a body before anyone else does, and only so far: what `Content-Length` claims is not relied on.

    Specs are words, and little; predictions carry their texts, and their limit is told in characters.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        """`max_bytes`: of all bodies but those of predictions."""
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        is_prediction = scope["path"].endswith(_PREDICTION_ENDING)
        max_bytes = MAX_REQUEST_BYTES if is_prediction else self._max_bytes
        body = bytearray()
        message: Message = {"more_body": True}
        while message.get("more_body", False):
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > max_bytes:
                await _drain(receive)
                await problem_response(scope, _too_large(max_bytes, is_prediction))(scope, receive, send)
                return
        is_sent = False

        async def replay() -> Message:
            nonlocal is_sent
            if is_sent:
                return await receive()
            is_sent = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)


def _too_large(max_bytes: int, is_prediction: bool) -> ServiceError:
    why = "Specs are words: data goes by URI."
    if is_prediction:
        why = f"Its texts hold at most {MAX_TOTAL_CHARACTERS} characters: for more, take the model where it lies."
    return BodyTooLargeError(f"A body must be at most {max_bytes} bytes. {why}")


async def _drain(receive: Receive) -> None:
    """Read on for a while: a client that is still sending when the connection closes never sees the answer."""
    drained = 0
    with anyio.move_on_after(_DRAIN_SECONDS):
        while drained < _DRAINED_BYTES:
            message = await receive()
            drained += len(message.get("body", b""))
            if not message.get("more_body", False):
                return
