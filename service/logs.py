"""How the service's log is written: lines for people at a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_TRACES = ("exception", "stack")


def configure_logs(log_json: bool | None = None) -> None:
    """Set up structlog and the standard library's logging, once, for the whole process."""
    as_json = not sys.stderr.isatty() if log_json is None else log_json
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # Plain traces: the pretty ones print local variables, among them tokens and whole specs.
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    last: list[Any] = [escape_controls, console]
    if as_json:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    # These tell of every request by themselves, tokens in URLs included; the service writes its own line.
    for name in ("httpx", "httpcore", "alembic", "uvicorn.access", "sse_starlette"):
        logging.getLogger(name).setLevel(logging.WARNING)


def escape_controls(logger: object, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor: line ends and control characters in values as `\\n` and the like, for lines that people read. With
    them a name or a path from outside could forge lines or change what the terminal shows. JSON escapes them itself.
    """
    for key, value in event.items():
        if isinstance(value, str) and key not in _TRACES and not value.isprintable():
            event[key] = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in value)
    return event
