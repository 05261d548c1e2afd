"""JSON as RFC 8259 has it, and not a word more: what Python's parser lets through is refused here."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from service.errors import Fault, MalformedBodyError

MAX_DEPTH = 32
"""Specs are five deep."""
_MAX_DIGITS = 400
"""Longer numbers are no quantity of anything, and slow to read."""


def parse_json(body: bytes) -> Any:
    """The value of a body.

    Raises:
        MalformedBodyError: it is empty, not UTF-8, not JSON, holds NaN, a number out of range, a key twice or half a
            surrogate pair, or is nested too deep.
    """
    if not body.strip():
        raise _malformed("must not be empty")
    try:
        value = json.loads(
            body.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            parse_int=_short_int,
            object_pairs_hook=_without_duplicates,
        )
    except UnicodeDecodeError as error:
        raise _malformed(f"must be UTF-8: byte {error.start} is not") from error
    except json.JSONDecodeError as error:
        raise _malformed(f"must be JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise _malformed(f"must not be nested more than {MAX_DEPTH} deep") from error
    _check(value)
    return value


def _check(value: Any) -> None:
    """Depth and text, without recursion."""
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _malformed(f"must not be nested more than {MAX_DEPTH} deep")
        if isinstance(item, dict):
            waiting.extend((part, depth + 1) for pair in item.items() for part in pair)
        elif isinstance(item, list):
            waiting.extend((part, depth + 1) for part in item)
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError as error:
                raise _malformed("must not hold half a surrogate pair") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _malformed(f"must not hold the key {twice[:100]!r} twice in one object")
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise _malformed(f"must not hold {word}, which is no JSON number")


def _finite_float(text: str) -> float:
    value = float(text) if len(text) <= _MAX_DIGITS else math.inf
    if not math.isfinite(value):
        raise _malformed(f"must not hold numbers out of range, such as {text[:50]}")
    return value


def _short_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _malformed(f"must not hold numbers of more than {_MAX_DIGITS} digits")
    return int(text)


def _malformed(rule: str) -> MalformedBodyError:
    return MalformedBodyError(f"The body {rule}.", [Fault("", rule)])
