"""From a record to a document: normal form, control characters, lengths, hash. Pure functions of text."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from typing import Literal

from pipelines.specs.corpus import CleaningSpec

HASH_BYTES = 16
"""Of BLAKE2b: two of 10^15 different documents collide with a probability of 10^-9."""
PIECE_CHARACTERS = 20_000
"""Documents are tokenised in pieces of about so many characters: bounds memory, changes no token."""

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff]")


def clean(text: str, spec: CleaningSpec) -> str:
    """Normal form, `\\n` line ends, no control characters but line ends and tabs, no white space at either end."""
    text = _LINE_ENDS.sub("\n", text)
    text = _CONTROLS.sub("", text)
    if spec.unicode_normalization != "none" and not text.isascii():
        text = unicodedata.normalize(spec.unicode_normalization, text)
    return text.strip()


def verdict(text: str, spec: CleaningSpec) -> Literal["kept", "too_short", "too_long"]:
    """What the length limits say about a cleaned document."""
    if len(text) < spec.min_characters:
        return "too_short"
    if spec.max_characters is not None and len(text) > spec.max_characters:
        return "too_long"
    return "kept"


def document_hash(encoded: bytes) -> bytes:
    """Hash of a cleaned document's UTF-8: what deduplication and the held-out split go by."""
    return hashlib.blake2b(encoded, digest_size=HASH_BYTES).digest()


def split_at_spaces(text: str, limit: int = PIECE_CHARACTERS) -> Iterator[str]:
    """Cut a text into pieces of about `limit` characters, between words where it has any.

    White space at a cut stays with the piece before it, so the pieces join to the text.
    """
    start = 0
    while len(text) - start > limit:
        cut = _space_before(text, start + limit, start)
        yield text[start:cut]
        start = cut
    if start < len(text):
        yield text[start:]


def _space_before(text: str, end: int, start: int) -> int:
    """Position after the last white space before `end`, or `end` where the text has none in the last stretch."""
    for cut in range(end, max(start, end - 2000), -1):
        if text[cut - 1].isspace():
            return cut
    return end
