"""What is kept of texts that are tokenised, as a stream: a whole encoding takes nearly a kilobyte a token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

CHUNK_CHARACTERS = 1_000_000
"""Of the texts that are tokenised at a time; a longer one is tokenised in pieces."""
# Greedy: the last blank before a word. Other characters of Unicode are blanks to some tokenizers alone.
_TO_LAST_GAP = re.compile(r".*(?=[ \t\r\n][^ \t\r\n])", re.DOTALL)
_Input = TypeVar("_Input", str, list[str])
_Kept = TypeVar("_Kept")


class Text(NamedTuple):
    """What is kept of a text that is cut to a row's length."""

    ids: list[int]
    """As many as a row may have."""
    num_tokens: int
    """Of the whole text; where that is longer than `CHUNK_CHARACTERS`, of as much as fills a row, and more than fit."""


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
        return self._encoded(texts, self._text, self._long_text)

    def words(self, texts: Sequence[list[str]]) -> Iterator[Words]:
        """Each text of words, cut to a row's length."""
        return self._encoded(texts, self._words, self._long_words)

    def contexts(self, texts: Sequence[str]) -> Iterator[Context]:
        """Each text, whole."""
        return self._encoded(texts, _context, self._long_context)

    def _encoded(
        self,
        texts: Sequence[_Input],
        keep: Callable[[Encoding], _Kept],
        keep_long: Callable[[_Input], _Kept],
    ) -> Iterator[_Kept]:
        """What is kept of each text's encoding, in order. Of whole encodings there is one chunk at a time."""
        for start, end in _chunks(texts):
            if _length(texts[start]) > CHUNK_CHARACTERS:  # and alone
                yield keep_long(texts[start])
            else:
                yield from [keep(encoding) for encoding in self._batch(texts[start:end])]

    def _batch(self, texts: Sequence[_Input]) -> list[Encoding]:
        batch: Any = texts
        is_split = isinstance(texts[0], list)
        encodings: list[Encoding] = self._tokenizer.encode_batch(
            batch, is_pretokenized=is_split, add_special_tokens=False
        )
        return encodings

    def _text(self, encoding: Encoding) -> Text:
        return Text(encoding.ids[: self._max_length], len(encoding))

    def _words(self, encoding: Encoding) -> Words:
        numbers = encoding.word_ids[: self._max_length - 2]
        return Words(self._text(encoding), [-1 if number is None else number for number in numbers])

    def _long_text(self, text: str) -> Text:
        return self._until_full(self._text(self._batch([piece])[0]) for _, piece in _pieces(text))

    def _until_full(self, pieces: Iterable[Text]) -> Text:
        """As much of a text as fills a row, and whether that is all."""
        ids: list[int] = []
        num_tokens = 0
        for piece in pieces:
            ids += piece.ids
            num_tokens += piece.num_tokens
            if num_tokens > self._max_length:
                break
        return Text(ids[: self._max_length], num_tokens)

    def _long_words(self, words: list[str]) -> Words:
        numbers: list[int] = []

        def pieces() -> Iterator[Text]:
            for first, last in _chunks(words):
                # Its first piece carries a word's label, and stands at its beginning.
                piece = self._words(self._batch([[word[:CHUNK_CHARACTERS] for word in words[first:last]]])[0])
                numbers.extend(number if number < 0 else first + number for number in piece.numbers)
                yield piece.text

        text = self._until_full(pieces())
        return Words(text, numbers[: self._max_length - 2])

    def _long_context(self, text: str) -> Context:
        ids, spans = [], []
        for start, piece in _pieces(text):
            context = _context(self._batch([piece])[0])
            ids.append(context.ids)
            spans.append(context.spans + np.int32(start))
        return Context(np.concatenate(ids), np.concatenate(spans))


def _length(text: Sequence[str]) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))


def _chunks(texts: Sequence[str] | Sequence[list[str]]) -> Iterator[tuple[int, int]]:
    """First text, and last plus one, of runs of `CHUNK_CHARACTERS` at most, or of one text that is longer."""
    start = size = 0
    for index, text in enumerate(texts):
        length = 1 + _length(text)
        if size and size + length > CHUNK_CHARACTERS:
            yield start, index
            start, size = index, 0
        size += length
    if size:
        yield start, len(texts)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Parts of a text, `CHUNK_CHARACTERS` long at most, and where each begins.

    They end before the blank before a word, which no token reaches across, so their tokens are those of the whole text.
    Where half of a part has none they end anywhere, and a word that is as long is read as two.
    """
    start = 0
    while len(text) - start > CHUNK_CHARACTERS:
        middle, end = start + CHUNK_CHARACTERS // 2, start + CHUNK_CHARACTERS
        before_gap = _TO_LAST_GAP.match(text, middle, end)
        end = before_gap.end() if before_gap else end
        yield start, text[start:end]
        start = end
    yield start, text[start:]


def _context(encoding: Encoding) -> Context:
    return Context(np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int32).reshape(-1, 2))
