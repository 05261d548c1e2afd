"""Structured logs of a job: one JSON object a line, or aligned text for people at a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import structlog

from pipelines.joblogs.redaction import redactor


def configure_logging(**context: Any) -> None:
    """Send this process's log to stdout, with `context` in every line. Call once per process."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = (
        structlog.dev.ConsoleRenderer()
        if sys.stdout.isatty()
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _without(redactor()),
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    ours = logging.getLogger("pipelines")
    ours.handlers, ours.propagate = [handler], False
    ours.setLevel(logging.INFO)
    structlog.contextvars.bind_contextvars(**context)


def _without(redact: Callable[[str], str]) -> Any:
    """Whatever the environment holds of credentials does not reach Ray's dashboard."""

    def process(_: Any, __: str, event: Any) -> Any:
        return {key: redact(value) if isinstance(value, str) else value for key, value in event.items()}

    return process
