"""The held-out split, and reading back what stage 1 wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import storage
from pipelines.corpus.texts import TextPart, Texts
from pipelines.errors import CorpusError


@dataclass(frozen=True, slots=True)
class Split:
    """A document is held out if the first 8 bytes of its hash, as a number, lie below `threshold`."""

    threshold: int
    was_forced: bool = False
    """The fraction alone would have left one side empty, so the document of the smallest hash is held out alone."""


class Document(NamedTuple):
    """A document as later stages read it."""

    text: str
    is_held_out: bool


class PartWork(NamedTuple):
    """A file of texts to read, and the rows in it to pass over."""

    number: int
    uri: str
    source: int
    num_bytes: int
    dropped: np.ndarray[Any, Any]


def split_of(texts: Texts, validation_fraction: float) -> Split:
    """The split of a whole corpus.

    Raises:
        CorpusError: there are fewer than two documents.
    """
    if texts.num_documents < 2 or texts.smallest_hash == texts.largest_hash:
        raise CorpusError(_too_few(texts), texts.report)
    threshold = round(validation_fraction * 2**64)
    if texts.smallest_hash < threshold <= texts.largest_hash:
        return Split(threshold)
    return Split(texts.smallest_hash + 1, was_forced=True)


def _too_few(texts: Texts) -> str:
    counts = texts.counts
    if texts.num_documents:
        return (
            "the corpus is a single document, and one must be held out from training; add documents, or read a text "
            "file by paragraph (corpus.sources.document: paragraph)"
        )
    return (
        f"no document is left of {counts['records']} records: {counts['bad_records']} malformed, "
        f"{counts['too_short']} too short, {counts['too_long']} too long; look at corpus.sources and at "
        "corpus.cleaning.min_characters"
    )


def part_work(texts: Texts) -> Iterator[PartWork]:
    """The files of stage 1 in order, each with its duplicates."""
    duplicates = texts.duplicates()
    first = 0
    for number, part in enumerate(texts.parts):
        low, high = np.searchsorted(duplicates, (first, first + part.num_documents))
        yield PartWork(number, _uri(texts, part), part.source, part.num_bytes, duplicates[low:high] - first)
        first += part.num_documents


def _uri(texts: Texts, part: TextPart) -> str:
    return storage.join(texts.uri, part.name)


def read_part(work: PartWork, split: Split) -> Iterator[Document]:
    """The documents of one file that are no duplicates, in order."""
    with storage.open_input(work.uri) as stream:
        table = pq.read_table(stream, columns=["hash", "text"])
    keep = np.ones(len(table), bool)
    keep[work.dropped] = False
    hashes: pa.ChunkedArray = table["hash"]
    for kept, document_hash, text in zip(keep.tolist(), hashes.to_pylist(), table["text"], strict=True):
        if kept:
            yield Document(text.as_py(), int.from_bytes(document_hash[:8], "big") < split.threshold)
