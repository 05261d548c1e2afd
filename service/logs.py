"""How the service's log is written: lines for people at a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from service.access.escaping import escape_controls
from service.tracing.setup import is_wanted, note_trace


def configure_logs(log_json: bool | None = None) -> None:
    """Set up structlog and the standard library's logging, once, for the whole process."""
    as_json = not sys.stderr.isatty() if log_json is None else log_json
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if is_wanted():
        shared.append(note_trace)
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
