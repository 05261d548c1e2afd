"""Where a reader of kept logs is: opaque to clients, checked letter by letter when it comes back. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pipelines.specs.log_lines import PartKey, is_source

MAX_CURSOR_CHARACTERS = 16_000
_TOKEN = re.compile(r"[0-9]{13}-[0-9a-f]{6}")
_LARGEST = 10**9


class Position(NamedTuple):
    """Behind so many lines of a part."""

    key: PartKey
    line: int


@dataclass(frozen=True)
class LogCursor:
    """A place in the logs of one attempt."""

    attempt: int
    after_source: str = ""
    """Sources up to this one, in the order of their names, are done with."""
    positions: Mapping[str, Position] = field(default_factory=dict)
    """In sources after it; one that is absent is at its beginning."""

    def encode(self) -> str:
        """As clients get it."""
        positions = {
            name: [place.key.number, place.key.token, place.line] for name, place in sorted(self.positions.items())
        }
        document = [self.attempt, self.after_source, positions]
        return base64.urlsafe_b64encode(json.dumps(document, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> LogCursor:
        """Of what `encode` gave.

        Raises:
            ValueError: it is something else.
        """
        if len(text) > MAX_CURSOR_CHARACTERS:
            raise ValueError("too long")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            attempt, after, told = json.loads(raw)
            if not _is_count(attempt) or attempt < 1 or not isinstance(after, str) or (after and not is_source(after)):
                raise ValueError("no attempt or source")
            return cls(attempt, after, {_name(name): _position(*place) for name, place in told.items()})
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError("not a cursor") from error


def _name(name: str) -> str:
    if not is_source(name):
        raise ValueError("no source")
    return name


def _position(number: object, token: object, line: object) -> Position:
    if not (_is_count(number) and _is_count(line) and isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise ValueError("no position")
    assert isinstance(number, int)
    assert isinstance(line, int)
    return Position(PartKey(number, token), line)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
