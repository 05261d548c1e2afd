"""Server-sent events, read: the part of the format that this service writes, and what the standard asks beside it.

Source: WHATWG HTML, section 9.2.6 "Interpreting an event stream".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True)
class ServerEvent:
    """One event of a stream."""

    name: str
    """`message` unless the stream named it."""
    data: str
    event_id: str | None
    """The last id the stream gave, on this event or before it."""


def parse_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Events from the lines of a stream. One that is cut off before its empty line is dropped, as it must be."""
    name, event_id = "", None
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(name or "message", "\n".join(data), event_id)
            name, data = "", []
            continue
        key, _, value = line.partition(":")  # a line that starts with a colon is a comment: a sign of life
        value = value.removeprefix(" ")
        if key == "event":
            name = value
        elif key == "data":
            data.append(value)
        elif key == "id" and "\0" not in value:
            event_id = value


def stream_lines(chunks: Iterable[str]) -> Iterator[str]:
    """Lines from pieces of a stream, however it was cut. An unfinished last line is dropped.

    Only the three line ends of the standard count: `str.splitlines`, which httpx uses, also splits at form feeds and
    Unicode separators, and those stand in logs.
    """
    rest = ""
    for chunk in chunks:
        # A carriage return at the end may be half of a line end.
        text, held = (rest + chunk, "") if not chunk.endswith("\r") else (rest + chunk[:-1], "\r")
        *lines, rest = _LINE_END.split(text)
        yield from lines
        rest += held
    if rest.endswith("\r"):
        yield rest[:-1]
