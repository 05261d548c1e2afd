"""The words of a text, as files for tagging have them, made of the tokens of a model that was finetuned on such files.

There each word's label is learned by its first token alone, whatever the word holds: of "well-known" that is "well".
Here the text comes whole, so words are looked for: they are parted by blanks, and marks of punctuation at their ends
are words of their own. "don't" stays one word, where some files have two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# BERT's normaliser puts blanks around each of these: languages written with them put none between words.
_IDEOGRAPH = (
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    r"\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f"
)
_CHUNK = re.compile(rf"[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}]+")
_ASCII_SYMBOLS = frozenset("$+<=>^`|~")
"""Punctuation to BERT, though Unicode calls them symbols."""


@dataclass(frozen=True)
class Word:
    """Tokens that stand for one word."""

    first: int
    """Place of its first token."""
    last: int
    """Place of its last, which is part of it."""
    start: int
    """In characters of the text."""
    end: int


def words_of(text: str, offsets: Sequence[tuple[int, int]]) -> list[Word]:
    """The words of a text, in order.

    Args:
        text: what was read.
        offsets: start and end of each of its tokens, in characters. Tokens of blanks belong to no word.
    """
    return [
        # A token may begin with the blank before the word.
        Word(first, last, _past_blanks(text, *offsets[first]), max(end for _, end in offsets[first : last + 1]))
        for places in _chunks(text, offsets)
        for first, last in _split(places, [_is_punctuation(text, *offsets[place]) for place in places])
    ]


def _chunks(text: str, offsets: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Places of tokens, by the stretch between blanks that they stand in."""
    number_at: dict[int, int] = {}
    for number, found in enumerate(_CHUNK.finditer(text)):
        number_at.update(dict.fromkeys(range(*found.span()), number))
    chunks: dict[int, list[int]] = {}
    for place, (start, end) in enumerate(offsets):
        is_blank = not text[start:end].strip()
        found_in = None if is_blank else number_at.get(_past_blanks(text, start, end))
        if found_in is not None:
            chunks.setdefault(found_in, []).append(place)
    return list(chunks.values())


def _split(places: list[int], is_mark: list[bool]) -> Iterator[tuple[int, int]]:
    """First and last token of each word of a stretch: marks before, what lies between, marks behind."""
    first, end = 0, len(places)
    while first < end and is_mark[first]:
        first += 1
    while end > first and is_mark[end - 1]:
        end -= 1
    yield from ((place, place) for place in places[:first])
    if first < end:
        yield places[first], places[end - 1]
    yield from ((place, place) for place in places[end:])


def _past_blanks(text: str, start: int, end: int) -> int:
    return end - len(text[start:end].lstrip())


def _is_punctuation(text: str, start: int, end: int) -> bool:
    marks = text[start:end].strip()
    return all(mark in _ASCII_SYMBOLS or unicodedata.category(mark).startswith("P") for mark in marks)
