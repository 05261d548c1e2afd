"""Bodies are checked as JSON before FastAPI reads them: its own reading is more forgiving."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from service.errors import UnsupportedMediaTypeError
from service.http.strict_json import parse_json


class StrictJsonRoute(APIRoute):
    """A route that takes JSON in its strict form only, and only when it is called that."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the check."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        is_required = self.body_field.field_info.is_required()

        async def checked(request: Request) -> Response:
            body = await request.body()
            if body:
                _check_content_type(request.headers.get("content-type"))
            if body or is_required:
                parse_json(body)
            return await handle(request)

        return checked


def _check_content_type(content_type: str | None) -> None:
    message = Message()
    message["content-type"] = content_type or ""
    kind = message.get_content_type() if content_type else "nothing"
    # Besides being wrong, a form's content type would let any web page post here without the browser asking first.
    if not (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
        raise UnsupportedMediaTypeError(f"Content-Type must be application/json, got {kind[:100]!r}.")
    if message.get_content_charset("utf-8") not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaTypeError(f"JSON must be UTF-8, got {message.get_content_charset()!r}.")
