"""Which files a corpus consists of, what identifies them, and how they are cut into pieces of work. No Ray here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pipelines import storage
from pipelines.corpus import python_docs
from pipelines.errors import CorpusError
from pipelines.specs.corpus import CorpusSpec, JsonlSource, ParquetSource, PythonDocsSource, Source, TextSource
from pipelines.storage import FoundFile, decompression
from pipelines.storage.artifacts import digest_of

RANGE_BYTES = 32 << 20
"""Plain files larger than twice this are read in ranges of so many bytes, in parallel. Part of the format."""
PYTHON_FILES_BYTES = 4 << 20
"""Source code one piece of `python_docs` parses, about half a second of work."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads: a file, a byte range of it, some of its row groups, or some Python files."""

    source: int
    """Index in the spec."""
    kind: str
    """`text`, `jsonl`, `parquet` or `python_docs`."""
    uri: str
    """The file; for `python_docs` a name for reports."""
    document: str = "file"
    """For `text`: `file`, `paragraph` or `line`."""
    field: str = ""
    """For `jsonl` and `parquet`."""
    start: int = 0
    end: int | None = None
    """Bytes of the file whose lines belong here; None reads to its end."""
    row_groups: tuple[int, ...] | None = None
    """For `parquet`; None reads them all."""
    files: tuple[str, ...] = ()
    """For `python_docs`: paths."""

    @property
    def is_whole_file(self) -> bool:
        """Whether nothing of the file lies in another piece."""
        return self.start == 0 and self.end is None and self.row_groups is None and not self.files


@dataclass(frozen=True, slots=True)
class Inventory:
    """One source's files, in the order they are read."""

    index: int
    source: Source
    files: tuple[FoundFile, ...]
    """For `python_docs`: every Python file, with a path relative to its distribution as identity."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the digest of the corpus takes from this source: its words and its files, not its weight."""
        words = self.source.model_dump(mode="json", exclude={"weight", "uris", "packages"})
        if isinstance(self.source, PythonDocsSource):
            # The same packages elsewhere on the disk are the same corpus.
            return words | {"files": digest_of({"files": [(f.identity, f.size_bytes) for f in self.files]})}
        return words | {"files": digest_of({"files": [tuple(f) for f in self.files]})}


def take_inventory(spec: CorpusSpec) -> tuple[Inventory, ...]:
    """List every source.

    Raises:
        StorageError: a URI is absent or cannot be read.
        CorpusError: a package is not installed.
    """
    return tuple(Inventory(index, source, _files(source)) for index, source in enumerate(spec.sources))


def known_size(spec: CorpusSpec) -> int | None:
    """Bytes of all sources as stored (compressed where they are), or None where that takes reading them.

    Raises:
        StorageError: a URI is absent or cannot be read.
    """
    if any(isinstance(source, PythonDocsSource) for source in spec.sources):
        return None  # how much of a package is documentation shows only when it is parsed
    sizes = [file.size_bytes for inventory in take_inventory(spec) for file in inventory.files]
    return None if min(sizes) < 0 else sum(sizes)


def cut_into_pieces(inventory: tuple[Inventory, ...]) -> list[Piece]:
    """The work in reading order. It depends on the files alone, never on the cluster. Empty files give no piece."""
    with ThreadPoolExecutor(8) as pool:  # only large Parquet files are opened here, for their footers
        files = [(i.index, i.source, file) for i in inventory for file in _readable(i)]
        return [piece for pieces in pool.map(lambda work: list(_pieces(*work)), files) for piece in pieces]


def _files(source: Source) -> tuple[FoundFile, ...]:
    if isinstance(source, PythonDocsSource):
        return python_docs.list_files(source.packages, source.include_standard_library)
    found = [file for uri in source.uris for file in storage.expand(uri)]
    once = {file.uri: file for file in found}  # two patterns may name one file; the first naming sets its place
    return tuple(once.values())


def _readable(inventory: Inventory) -> Iterator[FoundFile]:
    if isinstance(inventory.source, PythonDocsSource):
        yield from _python_groups(inventory.files)
    else:
        yield from (file for file in inventory.files if file.size_bytes != 0)


def _python_groups(files: tuple[FoundFile, ...]) -> Iterator[FoundFile]:
    """Consecutive files joined by newlines into one, up to a size."""
    group: list[str] = []
    size = 0
    for file in files:
        group.append(file.uri)
        size += file.size_bytes
        if size >= PYTHON_FILES_BYTES:
            yield FoundFile("\n".join(group), size, "")
            group, size = [], 0
    if group:
        yield FoundFile("\n".join(group), size, "")


def _pieces(index: int, source: Source, file: FoundFile) -> Iterator[Piece]:
    if isinstance(source, PythonDocsSource):
        yield Piece(index, "python_docs", "python_docs", files=tuple(file.uri.split("\n")))
    elif isinstance(source, ParquetSource):
        for groups in _row_groups(file):
            yield Piece(index, "parquet", file.uri, field=source.text_field, row_groups=groups)
    else:
        field = source.text_field if isinstance(source, JsonlSource) else ""
        document = source.document if isinstance(source, TextSource) else "line"
        for start, end in _byte_ranges(file, document):
            yield Piece(index, source.type, file.uri, document, field, start, end)


def _byte_ranges(file: FoundFile, document: str) -> Iterator[tuple[int, int | None]]:
    can_seek = not file.uri.lower().endswith(decompression.SUFFIXES) and not file.uri.startswith(
        ("http://", "https://")
    )
    starts = range(0, file.size_bytes, RANGE_BYTES)
    if document == "file" or not can_seek or file.size_bytes <= 2 * RANGE_BYTES:
        yield 0, None
        return
    for start in starts:
        yield start, start + RANGE_BYTES if start + RANGE_BYTES < file.size_bytes else None


def _row_groups(file: FoundFile) -> list[tuple[int, ...] | None]:
    if 0 <= file.size_bytes <= 2 * RANGE_BYTES:
        return [None]
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with storage.open_input(file.uri) as stream:
            metadata = pq.ParquetFile(stream).metadata
            sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    except (pa.ArrowException, OSError):
        return [None]  # the reader will find the same fault, and report it with the others
    groups: list[tuple[int, ...] | None] = []
    current: list[int] = []
    for number, _ in enumerate(sizes):
        current.append(number)
        if sum(sizes[i] for i in current) >= RANGE_BYTES:
            groups.append(tuple(current))
            current = []
    return [*groups, tuple(current)] if current else groups


def require_files(inventory: tuple[Inventory, ...]) -> None:
    """Raise a `CorpusError` where there is nothing at all to read."""
    if not any(file.size_bytes for source in inventory for file in source.files):
        number = sum(len(source.files) for source in inventory)
        raise CorpusError(f"all {number} files of corpus.sources are empty; name files with text in them")
