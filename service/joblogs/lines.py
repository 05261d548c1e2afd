"""Lines of the logs that a job's processes keep: read with suspicion, shown without harm. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from pipelines.specs.log_lines import LEVELS, MAX_LINE_BYTES

_MAX_MESSAGE_CHARACTERS = 16_000
_MAX_DEPTH = 6
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class ShownLine(Protocol):
    """What can be rendered: a line as it was read, or as the interface gave it."""

    @property
    def time(self) -> datetime:
        """When it was logged."""

    @property
    def level(self) -> str:
        """One of `LEVELS`."""

    @property
    def source(self) -> str:
        """The process."""

    @property
    def logger(self) -> str:
        """Who in it."""

    @property
    def message(self) -> str:
        """What was said."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """What came with it."""


@dataclass(frozen=True)
class KeptLine:
    """One line of one source."""

    time: datetime
    level: str
    source: str
    logger: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def searched(self) -> str:
        """What a search looks at, without regard to upper and lower case."""
        # Text as it is, and not with the quotes and escapes that it is shown with.
        fields = " ".join(
            f"{key}={value if isinstance(value, str) else _shown(value)}" for key, value in self.fields.items()
        )
        return f"{self.logger} {self.message} {fields}".casefold()


def parse_line(raw: bytes, source: str, otherwise: datetime) -> KeptLine:
    """A line as a process wrote it. What is no such line is shown as a message, for it was written there.

    Args:
        raw: without its end.
        source: of whose part it is, whatever the line says of itself.
        otherwise: the time of a line that has none.
    """
    raw = raw[:MAX_LINE_BYTES]
    try:
        told = json.loads(raw, parse_constant=str)
        time = datetime.fromisoformat(told["time"])
        return KeptLine(
            time=(time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC),
            level=told["level"] if told["level"] in LEVELS else "info",
            source=source,
            logger=_sound(str(told["logger"]))[:200],
            message=_sound(str(told["message"]))[:_MAX_MESSAGE_CHARACTERS],
            fields=_fields(told.get("fields")),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        text = raw.decode("utf-8", errors="replace")[:_MAX_MESSAGE_CHARACTERS]
        return KeptLine(otherwise, "info", source, "", text)


def render_line(line: ShownLine) -> str:
    """One line as text for people. Whatever was logged moves no cursor, and cannot pass for a line of its own: further
    lines of a message are indented, control characters are written as escapes.
    """
    time = line.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    fields = "".join(f"  {key}={_shown(value)}" for key, value in line.fields.items())
    logger = f"{line.logger}: " if line.logger else ""
    message = "\n    ".join(line.message.rstrip("\n").split("\n"))
    return printable(f"{time}Z {line.level.upper():<8} {line.source}  {logger}{message}{fields}")


def printable(text: str) -> str:
    """The text with every control character but tabs and line ends written as an escape."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and " " not in value else json.dumps(value, ensure_ascii=False)


def _fields(told: Any) -> Mapping[str, Any]:
    return {_sound(key)[:200]: _sound_value(value, _MAX_DEPTH) for key, value in told.items()} if told else {}


def _sound_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _sound(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict | list) and not depth:
        return "…"
    if isinstance(value, dict):
        return {_sound(key): _sound_value(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_sound_value(item, depth - 1) for item in value]
    return value


def _sound(text: str) -> str:
    """Without halves of surrogate pairs, which no answer can carry."""
    return text.encode("utf-8", errors="replace").decode()
