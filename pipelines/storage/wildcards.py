"""Globs over URIs: `*`, `?` and `[]` inside one name, `**` across directories. Pure; pathlib has none before 3.13."""

from __future__ import annotations

import re
from collections.abc import Callable

_WILD = re.compile(r"[*?\[]")


def has_wildcards(uri: str) -> bool:
    """Whether the URI is a pattern."""
    return _WILD.search(uri) is not None


def static_prefix(uri: str) -> str:
    """The directory above the first pattern: where a listing has to start."""
    wild = _WILD.search(uri)
    assert wild is not None
    return uri[: uri.rindex("/", 0, wild.start())] or "/"


def matcher(pattern: str) -> Callable[[str], bool]:
    """A test of whole URIs."""
    expression = ""
    position = 0
    while position < len(pattern):
        if pattern.startswith("**/", position):
            expression += r"(?:[^/]+/)*"
            position += 3
        elif pattern.startswith("**", position):
            expression += r".*"
            position += 2
        else:
            piece, position = _one(pattern, position)
            expression += piece
    compiled = re.compile(expression, re.DOTALL)
    return lambda uri: compiled.fullmatch(uri) is not None


def _one(pattern: str, position: int) -> tuple[str, int]:
    letter = pattern[position]
    if letter == "*":
        return r"[^/]*", position + 1
    if letter == "?":
        return r"[^/]", position + 1
    # A closing bracket right after the opening (or its negation) is one of the set's letters.
    closing = pattern.find("]", position + (3 if pattern[position + 1 : position + 2] == "!" else 2))
    if letter != "[" or closing < 0:
        return re.escape(letter), position + 1
    letters = pattern[position + 1 : closing]
    negation = "^" if letters.startswith("!") else ""
    body = "".join(one if one == "-" else re.escape(one) for one in letters.removeprefix("!"))
    piece = f"(?!/)[{negation}{body}]"
    try:
        re.compile(piece)
    except re.error:  # a range that runs backwards: the bracket stands for itself
        return re.escape(letter), position + 1
    return piece, closing + 1
