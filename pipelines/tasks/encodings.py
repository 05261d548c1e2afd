"""What is kept of texts that are tokenised, as a stream: a whole encoding takes nearly a kilobyte a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

CHUNK_CHARACTERS = 1_000_000
"""Of the texts that are tokenised at a time."""
_Kept = TypeVar("_Kept")


class Text(NamedTuple):
    """What is kept of a text that is cut to a row's length."""

    ids: list[int]
    """As many as a row may have."""
    num_tokens: int
    """Of the whole text."""


class Words(NamedTuple):
    """What is kept of words with labels."""

    text: Text
    numbers: list[int]
    """Of the word each token is of; −1 for none."""


class Context(NamedTuple):
    """What is kept of a text that is read in windows."""

    ids: npt.NDArray[np.int32]
    spans: npt.NDArray[np.int32]
    """[tokens, 2], in characters."""


class TextEncoder:
    """Tokenises texts, and keeps of each what a row needs of it.

    Args:
        tokenizer: without truncation or padding of its own.
        max_length: tokens of a row at most.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length

    def texts(self, texts: Sequence[str]) -> Iterator[Text]:
        """Each text, cut to a row's length."""
        return self._encoded(texts, self._text)

    def words(self, texts: Sequence[list[str]]) -> Iterator[Words]:
        """Each text of words, cut to a row's length."""
        return self._encoded(texts, self._words)

    def contexts(self, texts: Sequence[str]) -> Iterator[Context]:
        """Each text, whole."""
        return self._encoded(texts, _context)

    def _encoded(
        self, texts: Sequence[str] | Sequence[list[str]], keep: Callable[[Encoding], _Kept]
    ) -> Iterator[_Kept]:
        """What is kept of each text's encoding, in order. Of whole encodings there is one chunk at a time."""
        is_split = bool(texts) and isinstance(texts[0], list)
        for start, end in _chunks(texts):
            chunk: Any = texts[start:end]
            yield from [
                keep(encoding)
                for encoding in self._tokenizer.encode_batch(chunk, is_pretokenized=is_split, add_special_tokens=False)
            ]

    def _text(self, encoding: Encoding) -> Text:
        return Text(encoding.ids[: self._max_length], len(encoding))

    def _words(self, encoding: Encoding) -> Words:
        numbers = encoding.word_ids[: self._max_length - 2]
        return Words(self._text(encoding), [-1 if number is None else number for number in numbers])


def _chunks(texts: Sequence[str] | Sequence[list[str]]) -> Iterator[tuple[int, int]]:
    """First text, and last plus one, of runs of `CHUNK_CHARACTERS` at most, or of one text that is longer."""
    start = size = 0
    for index, text in enumerate(texts):
        length = 1 + (len(text) if isinstance(text, str) else sum(map(len, text)))
        if size and size + length > CHUNK_CHARACTERS:
            yield start, index
            start, size = index, 0
        size += length
    if size:
        yield start, len(texts)


def _context(encoding: Encoding) -> Context:
    return Context(np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int32).reshape(-1, 2))
