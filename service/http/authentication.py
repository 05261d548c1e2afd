"""Every request is recognised before its body is read, and what it changed or was refused stands in the audit log."""

from __future__ import annotations

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access.access import Access
from service.access.audit import AuditEntry, Caller
from service.errors import NotAuthenticatedError, ServiceError, TooManyRequestsError
from service.http.problems import REQUEST_ID_KEY, problem_response
from service.http.rules import On, Rule, is_public

log = structlog.get_logger(__name__)

CALLER_KEY = "electra.caller"
"""Where the principal is left in the ASGI scope."""
RULE_KEY = "electra.rule"
"""Where `authorisation` leaves the rule of the route, and what it found the request to be about."""
ABOUT_KEY = "electra.about"


class Authentication:
    """Recognises who asks. Who cannot be recognised sees public paths and nothing else, not even which others exist."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = Caller(None, str(scope.get(REQUEST_ID_KEY, "")), (scope.get("client") or ("",))[0])
        scope[CALLER_KEY] = caller
        if is_public(scope["path"]):
            await self._app(scope, receive, send)
            return
        access: Access = scope["app"].state.desk.access
        try:
            credentials = Headers(scope=scope).getlist("authorization")
            if access.is_open:
                caller.principal = access.authenticate(credentials)  # asks nobody
            else:
                caller.principal = await run_in_threadpool(access.authenticate, credentials)
        except ServiceError as error:
            refused = await _refused(access, caller, scope, error)
            await problem_response(scope, refused)(scope, receive, send)
            return
        status = 0

        async def send_and_look(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_look)
        finally:
            entry = _entry(access, caller, scope, status or 500)
            if entry is not None:
                await run_in_threadpool(_record, access, entry)


async def _refused(access: Access, caller: Caller, scope: Scope, error: ServiceError) -> ServiceError:
    """The answer to whoever was not recognised; the failure is counted and, while there are few, recorded."""
    log.info("request_refused", status=error.status, code=error.code)
    if not isinstance(error, NotAuthenticatedError):
        return error
    try:
        access.note_failure(caller.address)
    except TooManyRequestsError as too_many:
        return too_many
    await run_in_threadpool(_record, access, caller.entry("authenticate", _shown_path(scope), None, "refused 401"))
    return error


def _entry(access: Access, caller: Caller, scope: Scope, status: int) -> AuditEntry | None:
    """The row of a request that wrote none itself; None where there is nothing to keep."""
    rule = scope.get(RULE_KEY)
    if caller.has_record or not isinstance(rule, Rule):
        return None
    # Of jobs that are hidden and of those that are not there the same is kept: neither can be told from the other.
    is_denied = status == 403 or (status == 404 and rule.on in (On.JOB, On.JOB_OF_ANYBODY, On.MODEL))
    if rule.action is None and not (is_denied and not access.is_open):
        return None
    about, project = scope.get(ABOUT_KEY) or (_shown_path(scope), caller.project)
    action = rule.action or f"{scope['method']} {getattr(scope.get('route'), 'path', '')}"
    return caller.entry(action, about, project, "done" if status < 400 else f"refused {status}")


def _shown_path(scope: Scope) -> str:
    return f"{scope['method']} {scope['path']}"


def _record(access: Access, entry: AuditEntry) -> None:
    try:
        access.store.record(entry)
    except Exception:  # the answer is given: a log that cannot be written must not undo it, and must not be silent
        log.exception("audit_row_lost", action=entry.action, object=entry.object, outcome=entry.outcome)
