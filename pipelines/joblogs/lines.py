"""One line of a log as it is kept: JSON of bounded size, whatever was logged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pipelines.specs.log_lines import LEVELS, MAX_LINE_BYTES

MAX_MESSAGE_CHARACTERS = 8000
_MAX_FIELD_CHARACTERS = 2000
_MAX_ITEMS = 50
_MAX_DEPTH = 4


def encode_line(*, time: float, **said: Any) -> bytes:
    """A line in UTF-8, of at most `MAX_LINE_BYTES`, its end included. `time`: seconds since 1970; the rest as of
    `plain_line`.
    """
    return encode_plain(plain_line(**said), time)


def plain_line(
    *,
    level: str,
    logger: str,
    source: str,
    message: str,
    fields: Mapping[str, Any],
    redact: Callable[[str], str],
) -> dict[str, Any]:
    """What a line says, in JSON's own types. This alone asks what was logged for its words, by anybody's code.

    Args:
        level: one of `LEVELS`; any other becomes `info`.
        logger: its name.
        source: the process.
        message: of any length; the middle of a long one is left out.
        fields: whatever came with it; what is no JSON stands as text.
        redact: takes secrets out of a text.
    """
    document: dict[str, Any] = {
        "level": level if level in LEVELS else "info",
        "logger": cut(logger, 200),
        "source": source,
        "message": cut(redact(message), MAX_MESSAGE_CHARACTERS),
    }
    if fields:
        document["fields"] = _plain(fields, redact, _MAX_DEPTH)
    return document


def encode_plain(said: Mapping[str, Any], time: float) -> bytes:
    """A line of what `plain_line` gave."""
    moment = datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")
    document = {"time": moment, **said}
    line = _encoded(document)
    if len(line) > MAX_LINE_BYTES:
        # A control character takes six bytes, and there may be fields of fields.
        document |= {
            "message": cut(document["message"], 4000),
            "fields": {"fields_left_out": len(said.get("fields", ()))},
        }
        line = _encoded(document)
    return line


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and, as tracebacks say most there, twice as much of its end."""
    if len(text) <= limit:
        return text
    head = limit // 3
    return f"{text[:head]} …{len(text) - limit} characters left out… {text[head - limit :]}"


def _encoded(document: Mapping[str, Any]) -> bytes:
    # Half a surrogate pair, as `surrogateescape` makes of a file's bad bytes, has no UTF-8.
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8", errors="replace") + b"\n"


def _plain(value: Any, redact: Callable[[str], str], depth: int) -> Any:
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping) and depth:
        shown = list(value.items())[:_MAX_ITEMS]
        return {cut(redact(_text(key)), 200): _plain(item, redact, depth - 1) for key, item in shown}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_plain(item, redact, depth - 1) for item in list(value)[:_MAX_ITEMS]]
    return cut(redact(_text(value)), _MAX_FIELD_CHARACTERS)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - anybody's __str__; a log must not end what it tells of
        return f"<{type(value).__name__}>"
