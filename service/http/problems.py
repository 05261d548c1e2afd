"""The only place that makes problem answers (RFC 9457): from our own errors, from FastAPI's and from surprises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Scope

from service.errors import DatabaseUnavailableError, Fault, ServiceError
from service.http.schemas import Problem, ProblemItem

log = structlog.get_logger(__name__)

PROBLEM_JSON = "application/problem+json"
REQUEST_ID_KEY = "electra.request_id"
"""Where the middleware leaves the request's id in the ASGI scope."""
_MAX_SHOWN_CHARACTERS = 200
_PLACES = {"query": "/query", "path": "/path", "header": "/header", "cookie": "/cookie", "body": ""}


def problem_response(scope: Scope, error: ServiceError, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that says an error."""
    request_id = str(scope.get(REQUEST_ID_KEY, ""))
    problem = Problem(
        type=f"urn:electra:problem:{error.code}",
        title=error.title,
        status=error.status,
        code=error.code,
        detail=error.detail,
        instance=str(scope.get("path", "")),
        request_id=request_id,
        errors=tuple(ProblemItem(pointer=f.pointer, rule=f.rule, value=f.value) for f in error.faults),
    )
    # A path can hold half a surrogate pair, which cannot be written as UTF-8.
    content = problem.model_dump_json().encode("utf-8", errors="replace")
    # Answers to surprises are made outside all middleware, so they are given the headers of every answer here.
    always = getattr(scope["app"].state, "headers", {}) if "app" in scope else {}
    every = {**always, **error.headers, **(headers or {}), "X-Request-ID": request_id}
    return Response(content, error.status, every, PROBLEM_JSON)


@dataclass(frozen=True)
class DatabaseAway:
    """What is raised where the database is not available, in words that this room does not know."""

    kinds: tuple[type[Exception], ...] = ()
    applies: Callable[[Exception], bool] = lambda _: False
    """To an error of these kinds, some of which may be faults of our own."""


_NEVER_AWAY = DatabaseAway()


def register(app: FastAPI, away: DatabaseAway = _NEVER_AWAY) -> None:
    """Let the app answer every error as a problem, and say so in its OpenAPI."""
    on_surprise = partial(_on_surprise, away=away)
    for kind in away.kinds:
        app.add_exception_handler(kind, on_surprise)
    app.add_exception_handler(ServiceError, _on_service_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, on_surprise)  # of middleware too, around which the others do not stand
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses=` of a route: these problems, and those any route may answer."""
    content = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in sorted({400, 401, 403, 413, 422, 429, 500, 503, *statuses})
    }


def _on_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    log.info("request_refused", status=error.status, code=error.code, detail=error.detail)
    headers = {"Retry-After": "5"} if error.status == HTTPStatus.SERVICE_UNAVAILABLE else None
    return problem_response(request.scope, error, headers)


def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [_fault(item) for item in error.errors()]
    detail = "; ".join(f"{fault.pointer or 'body'}: {fault.rule}" for fault in faults[:5])
    return _on_service_error(request, _named(422, "invalid_request", "The request is not valid", f"{detail}.", faults))


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    detail, headers = str(error.detail), error.headers
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "There is nothing at this path. What there is: /docs."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = _methods_of(request)
        headers = {"Allow": allowed}
        detail = f"{request.method} is not possible here; {allowed} is."
    code = phrase.lower().replace(" ", "_").replace("-", "_")
    refused = _named(error.status_code, code, phrase, detail)
    return problem_response(request.scope, refused, headers)


def _on_database_away(request: Request, error: Exception) -> Response:
    log.warning("database_unavailable", method=request.method, path=request.url.path, error=str(error)[:300])
    detail = "The database does not answer, or takes no write now. What was asked for may have been done all the same."
    return problem_response(request.scope, DatabaseUnavailableError(detail), {"Retry-After": "5"})


def _on_surprise(request: Request, error: Exception, away: DatabaseAway) -> Response:
    if away.applies(error):
        return _on_database_away(request, error)
    log.error("request_failed", method=request.method, path=request.url.path, exc_info=error)
    detail = "Something went wrong inside the service. Its log tells more under this request_id."
    return problem_response(request.scope, ServiceError(detail))


def _methods_of(request: Request) -> str:
    """Starlette names only the methods of the first route of a path."""
    methods: set[str] = set()
    for path, operations in request.app.openapi()["paths"].items():
        if compile_path(path)[0].match(request.url.path):
            methods |= {method.upper() for method in operations}
    return ", ".join(sorted(methods)) or "GET"


def _named(status: int, code: str, title: str, detail: str, faults: Sequence[Fault] = ()) -> ServiceError:
    error = ServiceError(detail, faults)
    error.status, error.code, error.title = status, code, title
    return error


def _fault(item: Mapping[str, Any]) -> Fault:
    place, *path = item["loc"]
    absent = item["type"] == "missing"
    rule = "is required" if absent else str(item["msg"]).removeprefix("Value error, ")
    return Fault(_PLACES[str(place)] + _pointer(path), rule, None if absent else _shown(item.get("input")))


def _pointer(path: Iterable[object]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "…"


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's own, with the schemas of problems, which no route returns by itself."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _, made = models_json_schema([(Problem, "serialization")], ref_template="#/components/schemas/{model}")
        document.setdefault("components", {}).setdefault("schemas", {}).update(made["$defs"])
        app.openapi_schema = document
    return app.openapi_schema
