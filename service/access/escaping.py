"""Words of others made fit to stand in a line of a log. Pure."""

from __future__ import annotations

from typing import Any

_TRACES = ("exception", "stack")


def escape(text: str, max_characters: int = 500) -> str:
    """The text on one line: what could end the line, move a terminal's cursor or turn its text round is written as an
    escape, and what is too long is cut.
    """
    shown = "".join(one if one.isprintable() and one != "\\" else _escaped(one) for one in text[:max_characters])
    return shown if len(text) <= max_characters else f"{shown}…"


def escape_controls(_logger: Any, _method: str, event: Any) -> Any:
    """Processor of structlog, for lines that people read: the same for every text of an event, at any length. JSON
    escapes them itself.
    """
    for key, value in event.items():
        if isinstance(value, str) and key not in _TRACES and not value.isprintable():
            event[key] = "".join(one if one.isprintable() else _escaped(one) for one in value)
    return event


def _escaped(one: str) -> str:
    return one.encode("unicode_escape", "surrogatepass").decode("ascii")
