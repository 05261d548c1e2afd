"""Training rows and held-out rows out of token shards.

Which tokens stand in a row is a pure function of (corpus, weights, sequence length, seed, step, position in the
global batch). There is no iterator and so no iterator's state: a job resumes exactly, on any number of workers.

A row is [CLS], `sequence_length - 2` consecutive tokens of one source, [SEP]. Documents inside a row end in [SEP];
rows start and end anywhere, and none is padded (RoBERTa's packing; the original shortens 5 %). Training parts most of
them in two segments after this (`electra_core/segments.py`). Legend: a *read* is one time through a source, a *pass* is
one time through the weighted corpus.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines import storage
from pipelines.errors import CorpusError
from pipelines.rows.permutation import mix, permute
from pipelines.rows.token_stream import TokenStream
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.tokenizer import is_continuation, load_tokenizer

Int64s = npt.NDArray[np.int64]


class TrainingRows:
    """The endless training data, in an order that `seed` decides.

    A pass holds `round(weight × rows)` rows of each source, all sources shuffled together. A source of weight 0.5 is
    read half in one pass and the other half in the next; one of weight 2 twice in each. Every read of a source is
    shuffled anew, and cut at other places.

    Args:
        corpus: what to read.
        weights: one per source: times it is read per pass.
        sequence_length: tokens of a row, [CLS] and [SEP] included.
        seed: decides the order.

    Raises:
        CorpusError: there is not one row's worth of tokens.
        ValueError: the weights do not fit the corpus.
        StorageError: a shard is absent or incomplete.
    """

    def __init__(self, corpus: PreparedCorpus, weights: tuple[float, ...], sequence_length: int, seed: int) -> None:
        if len(weights) != len(corpus.source_train_tokens):
            raise ValueError(
                f"weights must be one per source, got {len(weights)} and {len(corpus.source_train_tokens)} sources"
            )
        self._special = corpus.special
        self._length = sequence_length
        self._width = inner_width(sequence_length)
        self._seed = seed
        self._rows_per_read = np.array([n // self._width for n in corpus.source_train_tokens], np.int64)
        # At least one row of whatever has one: a weight says how much of a source, not whether.
        weighted = np.maximum(np.rint(np.array(weights) * self._rows_per_read), 1).astype(np.int64)
        self._rows_per_pass = np.where(self._rows_per_read > 0, weighted, 0)
        self._ends = np.cumsum(self._rows_per_pass)
        if not self._ends[-1]:
            raise CorpusError(
                f"a row takes {self._width} tokens of one source, and the largest has "
                f"{max(corpus.source_train_tokens)}; add text or lower training.sequence_length ({sequence_length})"
            )
        self._streams = [TokenStream(corpus, "train", source) for source in range(len(weights))]

    @property
    def rows_per_pass(self) -> int:
        """Rows until every source was read as often as its weight says."""
        return int(self._ends[-1])

    def rows(self, step: int, positions: npt.ArrayLike, global_batch_size: int) -> Int64s:
        """Rows of a step's global batch.

        Args:
            step: optimizer step, from 0.
            positions: int[n], each in [0, global_batch_size): which rows of the batch.
            global_batch_size: rows per step over all workers.

        Returns:
            int64[n, sequence_length]; row i depends on the step and positions[i] alone.
        """
        index = step * global_batch_size + np.asarray(positions, np.int64)
        return self.pieces(index, np.zeros_like(index), self._length)

    def num_pieces(self, sequence_length: int) -> int:
        """Rows of another, lesser length that can be cut from one row without reading a token twice."""
        return self._width // inner_width(sequence_length)

    def pieces(self, index: Int64s, piece: Int64s, sequence_length: int) -> Int64s:
        """Short rows cut from rows of the endless sequence.

        Args:
            index: int64[n]: numbers of rows in the endless sequence.
            piece: int64[n], each in [0, num_pieces(sequence_length)): which part of that row's tokens.
            sequence_length: tokens of a short row, [CLS] and [SEP] included.

        Returns:
            int64[n, sequence_length].
        """
        sources, starts = self.locate(index, piece, sequence_length)
        width = inner_width(sequence_length)
        rows = _framed(len(index), sequence_length, self._special)
        for source in np.unique(sources):
            chosen = np.flatnonzero(sources == source)
            rows[chosen, 1:-1] = self._streams[source].windows(starts[chosen], width)
        return rows

    def locate(self, index: Int64s, piece: Int64s, sequence_length: int) -> tuple[Int64s, Int64s]:
        """Where the tokens of short rows stand: int64[n] sources, and int64[n] first tokens in them.

        A source is a ring: a row may run past its end, and goes on at its beginning. Arguments as for `pieces`.
        """
        sources, starts = self._locate(index)
        return sources, starts + piece * inner_width(sequence_length)

    @property
    def streams(self) -> Sequence[TokenStream]:
        """The training tokens of each source."""
        return self._streams

    def _locate(self, index: Int64s) -> tuple[Int64s, Int64s]:
        """Source and first token of each row of the endless sequence."""
        number_of_pass, within = np.divmod(index, self.rows_per_pass)
        shuffled = permute(within, self.rows_per_pass, mix(self._seed, number_of_pass))
        sources = np.searchsorted(self._ends, shuffled, side="right").astype(np.int64)
        per_pass, per_read = self._rows_per_pass[sources], self._rows_per_read[sources]
        # Rows of a source over all passes stand in one line; its reads are cut from that line, pass after pass.
        in_line = number_of_pass * per_pass + shuffled - (self._ends[sources] - per_pass)
        read, row = np.divmod(in_line, per_read)
        keys = mix(self._seed + 1, sources, read)
        row = permute(row, per_read, keys)
        shift = (mix(self._seed + 2, sources, read) % np.uint64(self._width)).astype(np.int64)
        return sources, row * self._width + shift


class ValidationRows:
    """Rows of the held-out documents, spread evenly over them.

    Args:
        corpus: what to read.
        sequence_length: tokens of a row, [CLS] and [SEP] included.
        max_rows: rows at most.

    Raises:
        CorpusError: the held-out text is shorter than one row.
        StorageError: a shard is absent or incomplete.
    """

    def __init__(self, corpus: PreparedCorpus, sequence_length: int, max_rows: int) -> None:
        self._special = corpus.special
        self._length = sequence_length
        self._width = inner_width(sequence_length)
        self._available = corpus.num_validation_tokens // self._width
        if not self._available:
            raise CorpusError(
                f"a row takes {self._width} tokens, and the held-out documents have {corpus.num_validation_tokens}; "
                "add text, raise corpus.validation_fraction or lower training.sequence_length"
            )
        self.num_rows = min(self._available, max_rows)
        """Rows there are."""
        self._stream = TokenStream(corpus, "validation", None)

    def rows(self, indices: npt.ArrayLike) -> Int64s:
        """int64[n, sequence_length] of int[n] indices in [0, num_rows)."""
        index = np.asarray(indices, np.int64)
        rows = _framed(len(index), self._length, self._special)
        rows[:, 1:-1] = self._stream.windows(index * self._available // self.num_rows * self._width, self._width)
        return rows


def read_unigram_counts(corpus: PreparedCorpus) -> Int64s:
    """How often each id stands in the training tokens: int64[vocab_size], the caller's own copy."""
    return np.load(io.BytesIO(storage.read_bytes(corpus.unigram_counts_uri)))  # type: ignore[no-any-return]


def read_continuations(corpus: PreparedCorpus) -> npt.NDArray[np.bool_]:
    """Which ids go on with a word: bool[vocab_size], from the tokenizer the corpus was made with.

    Raises:
        CorpusError: none does, so words cannot be told from tokens.
    """
    flags = is_continuation(load_tokenizer(corpus.tokenizer_uri))
    if not flags.any():
        raise CorpusError(
            f"masking.whole_word needs a vocabulary with ## continuations, and {corpus.tokenizer_uri} has none; "
            "take a WordPiece tokenizer, or leave masking.whole_word out"
        )
    return flags


def inner_width(sequence_length: int) -> int:
    """Tokens of text in a row, between [CLS] and [SEP]."""
    if sequence_length < 3:
        raise ValueError(f"sequence_length must be at least 3, got {sequence_length}")
    return sequence_length - 2


def _framed(rows: int, length: int, special: Any) -> Int64s:
    framed = np.empty((rows, length), np.int64)
    framed[:, 0], framed[:, -1] = special.cls, special.sep
    return framed
