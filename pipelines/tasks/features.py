"""The rows of a split as token ids: flat arrays with starts, so that a batch of any rows is cut out by arithmetic.

N rows (windows of a question, choices of a multiple choice, else one an example), T tokens in all.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines import storage

NO_LABEL = -100
"""Of a token without a label, and of a row whose label is not known; the loss's own number."""


@dataclass(frozen=True, slots=True)
class Features:
    """The rows of a split."""

    input_ids: npt.NDArray[np.int32]
    """[T]; [CLS] first, [SEP] last, and between two texts."""
    starts: npt.NDArray[np.int64]
    """[N + 1]; where each row begins, and the end."""
    num_first: npt.NDArray[np.int32]
    """[N]; tokens of type 0, the first [SEP] included."""
    examples: npt.NDArray[np.int32]
    """[N]; the example each row belongs to."""
    is_cut: npt.NDArray[np.bool_]
    """[N]; whether the end of a text did not fit into the row. Of a window, whether that of its question did not."""
    labels: npt.NDArray[Any]
    """int64[N] of classes or choices (of a choice's example in each of its rows), float32[N] of numbers from 0 to 1
    (NaN without one), int64[T] of tokens, int64[N, 2] of an answer's first and last token in its row (0 without)."""
    offsets: npt.NDArray[np.int32] | None = None
    """[T, 2] of questions: where each token of the context stands in it, in characters; −1 for all other tokens."""
    first_words: npt.NDArray[np.int32] | None = None
    """[T] of tokens with labels: the number of the word each first piece stands for; −1 elsewhere."""

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.examples)

    @property
    def num_examples(self) -> int:
        """Examples that have a row."""
        return len(np.unique(self.examples))

    @property
    def num_cut(self) -> int:
        """Examples with a row that is cut."""
        return len(np.unique(self.examples[self.is_cut]))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """int64[N], in tokens."""
        return np.diff(self.starts)

    def write(self, uri: str) -> None:
        """Write the arrays as one `.npz`."""
        buffer = io.BytesIO()
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        np.savez(buffer, **arrays)
        storage.write_bytes(uri, buffer.getvalue())

    @classmethod
    def read(cls, uri: str) -> Features:
        """What `write` wrote."""
        with np.load(io.BytesIO(storage.read_bytes(uri)), allow_pickle=False) as arrays:
            return cls(**{name: arrays[name] for name in arrays.files})


class Row(NamedTuple):
    """One row, special tokens included."""

    ids: list[int]
    num_first: int
    is_cut: bool


class Rows:
    """Rows as they come, then arrays."""

    def __init__(self) -> None:
        self._ids: list[npt.NDArray[np.int32]] = []
        self._num_first: list[int] = []
        self._examples: list[int] = []
        self._is_cut: list[bool] = []

    def add(self, example: int, row: Row) -> None:
        """Put down a row of the example of this number."""
        self._ids.append(np.array(row.ids, np.int32))
        self._num_first.append(row.num_first)
        self._examples.append(example)
        self._is_cut.append(row.is_cut)

    def features(self, labels: npt.NDArray[Any], **others: Any) -> Features:
        """All rows, with their labels and what else a kind of task has; see `Features`."""
        lengths = np.array([len(ids) for ids in self._ids], np.int64)
        return Features(
            input_ids=np.concatenate(self._ids) if self._ids else np.zeros(0, np.int32),
            starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            num_first=np.array(self._num_first, np.int32),
            examples=np.array(self._examples, np.int32),
            is_cut=np.array(self._is_cut, np.bool_),
            labels=labels,
            **others,
        )
