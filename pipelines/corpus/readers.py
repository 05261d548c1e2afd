"""Records out of files, one at a time; a malformed record is a value that says where and why, not an exception."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from pipelines import storage
from pipelines.corpus import python_docs
from pipelines.corpus.sources import Piece
from pipelines.storage.decompression import DamagedError, decompressed

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PARQUET_BATCH_ROWS = 256


class BadRecord(NamedTuple):
    """A record that is no text."""

    kind: str
    """`broken_utf8`, `malformed_json`, `missing_field`, `not_a_string`, `nul_character` or `unreadable_file`."""
    line: int
    """Line, or record number for Parquet, counted from 1 at the piece's start."""
    detail: str


@dataclass
class Position:
    """Where a reader stands."""

    line: int = 0
    """Lines, or Parquet records, of the piece that were read."""


def read_records(piece: Piece, position: Position) -> Iterator[str | BadRecord]:
    """The records of a piece, in order.

    Raises:
        StorageError: the file cannot be reached.
    """
    try:
        if piece.kind == "python_docs":
            yield from python_docs.read_documents(piece.files)
        elif piece.kind == "parquet":
            yield from _parquet_records(piece, position)
        elif piece.kind == "jsonl":
            yield from _jsonl_records(piece, position)
        elif piece.document == "file":
            yield from _file_record(piece)
        elif piece.document == "line":
            yield from _line_records(piece, position)
        else:
            yield from _paragraph_records(piece, position)
    except DamagedError as error:
        yield BadRecord("unreadable_file", position.line + 1, str(error))


def _file_record(piece: Piece) -> Iterator[str | BadRecord]:
    with _open(piece.uri) as stream:
        data = stream.read().removeprefix(_BYTE_ORDER_MARK)
    if data.strip():
        yield _decoded(data, 1)


def _line_records(piece: Piece, position: Position) -> Iterator[str | BadRecord]:
    for raw in _lines(piece, position):
        if raw.strip():
            yield _decoded(raw, position.line)


def _paragraph_records(piece: Piece, position: Position) -> Iterator[str | BadRecord]:
    paragraph: list[bytes] = []
    first = 1
    for raw in _lines(piece, position):
        if raw.strip():
            first = first if paragraph else position.line
            paragraph.append(raw)
        elif paragraph:
            yield _decoded(b"".join(paragraph), first)
            paragraph = []
    if paragraph:
        yield _decoded(b"".join(paragraph), first)


def _jsonl_records(piece: Piece, position: Position) -> Iterator[str | BadRecord]:
    for raw in _lines(piece, position):
        if not raw.strip():
            continue
        line = _decoded(raw, position.line)
        yield line if isinstance(line, BadRecord) else _field_of(line, piece.field, position.line)


def _field_of(line: str, field: str, number: int) -> str | BadRecord:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        return BadRecord("malformed_json", number, f"{error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets without end
        return BadRecord("malformed_json", number, str(error))
    if not isinstance(record, dict):
        return BadRecord("malformed_json", number, f"a line must hold an object, got {_json_type(record)}")
    if field not in record:
        return BadRecord("missing_field", number, f"there is no field {field!r}")
    text = record[field]
    if not isinstance(text, str):
        return BadRecord("not_a_string", number, f"field {field!r} must be a string, got {_json_type(text)}")
    return _checked(text, number)


def _json_type(value: object) -> str:
    names = {
        dict: "an object",
        list: "an array",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
    }
    return names.get(type(value), "null")


def _decoded(raw: bytes, line: int) -> str | BadRecord:
    """Text of bytes that begin at `line`; the report names the line of the first bad byte."""
    try:
        return _checked(raw.decode("utf-8"), line)
    except UnicodeDecodeError as error:
        at = line + raw.count(b"\n", 0, error.start)
        return BadRecord("broken_utf8", at, f"byte 0x{raw[error.start]:02x} is not UTF-8 ({error.reason})")


def _checked(text: str, line: int) -> str | BadRecord:
    nul = text.find("\x00")
    if nul >= 0:
        return BadRecord("nul_character", line + text.count("\n", 0, nul), "a NUL character stands in the text")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:  # JSON can escape half of a surrogate pair
            return BadRecord("broken_utf8", line, "half of a surrogate pair stands in the text")
    return text


def _lines(piece: Piece, position: Position) -> Iterator[bytes]:
    """Lines with their ends. A line belongs to the range it starts in; paragraphs too, at the next empty line."""
    with _open(piece.uri) as stream:
        offset = _seek_boundary(stream, piece.start, piece.document) if piece.start else 0
        while True:
            raw = stream.readline()
            if not raw:
                return
            if piece.end is not None and offset >= piece.end and (piece.document != "paragraph" or not raw.strip()):
                return
            is_first = offset == 0
            offset += len(raw)
            position.line += 1
            yield raw.removeprefix(_BYTE_ORDER_MARK) if is_first else raw


def _seek_boundary(stream: IO[bytes], start: int, document: str) -> int:
    """Go to the first line, or the first empty line, that starts at `start` or later; returns its offset."""
    stream.seek(start - 1)
    stream.readline()
    offset = stream.tell()
    while document == "paragraph":
        raw = stream.readline()
        if not raw.strip():
            stream.seek(offset)
            break
        offset = stream.tell()
    return offset


@contextmanager
def _open(uri: str) -> Iterator[IO[bytes]]:
    with storage.open_input(uri) as stored:
        yield decompressed(stored, uri)


def _parquet_records(piece: Piece, position: Position) -> Iterator[str | BadRecord]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with storage.open_input(piece.uri) as stream:
        try:
            file = pq.ParquetFile(stream)
            groups = piece.row_groups or tuple(range(file.metadata.num_row_groups))
            if piece.field not in file.schema_arrow.names:
                rows = sum(file.metadata.row_group(group).num_rows for group in groups)
                yield from _all_bad(rows, position, "missing_field", f"there is no column {piece.field!r}")
                return
            for batch in file.iter_batches(_PARQUET_BATCH_ROWS, row_groups=list(groups), columns=[piece.field]):
                yield from _column_records(batch.column(0), piece.field, position)
        except (pa.ArrowException, OSError) as error:
            raise DamagedError(f"the Parquet file is damaged: {' '.join(str(error).split())[:200]}") from error


def _column_records(column: Any, field: str, position: Position) -> Iterator[str | BadRecord]:
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        detail = f"column {field!r} must hold strings, got {kind}"
        yield from _all_bad(len(column), position, "not_a_string", detail)
        return
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # As bytes, so that one broken value costs one record: Parquet promises UTF-8, and not every writer keeps it.
    for value in column.cast(pa.large_binary()).to_pylist():
        position.line += 1
        if value is None:
            yield BadRecord("not_a_string", position.line, f"column {field!r} must hold strings, got null")
        else:
            record = _decoded(value, position.line)
            yield record._replace(line=position.line) if isinstance(record, BadRecord) else record


def _all_bad(rows: int, position: Position, kind: str, detail: str) -> Iterator[BadRecord]:
    for _ in range(rows):
        position.line += 1
        yield BadRecord(kind, position.line, detail)
