"""Rows out of labelled files, one at a time; a malformed row is a value that says where and why."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from pipelines import storage
from pipelines.errors import DataError
from pipelines.specs.labelled import Format
from pipelines.storage.decompression import DamagedError, decompressed

_BYTE_ORDER_MARK = "\ufeff"
_PARQUET_BATCH_ROWS = 1024
_LARGEST_CELL = 1 << 30


class Row(NamedTuple):
    """One row of a file."""

    uri: str
    line: int
    """Where it ends, or its number in a file without lines, from 1."""
    values: Mapping[str, Any]


class BadRow(NamedTuple):
    """A row that is none."""

    uri: str
    line: int
    """Where it begins."""
    detail: str
    num_lines: int = 1
    """Lines that are lost with it."""

    def __str__(self) -> str:
        return f"{self.uri}:{self.line}: {self.detail}"


def read_rows(
    uri: str,
    kind: Format,
    names: Sequence[str] | None = None,
    columns: Collection[str] | None = None,
    delimiter: str = ",",
) -> Iterator[Row | BadRow]:
    """The rows of one file of a tabular format, in order.

    Args:
        uri: the file, `.gz` and `.zst` included; for `datasets` the folder of a split.
        kind: `csv` has a header and quotes as in RFC 4180, `tsv` a header and no quoting at all, as GLUE's files.
        names: of the columns, for a `csv` or `tsv` without a header.
        columns: that somebody asks for. Where a file holds its columns apart, those of the others are None, whatever
            they hold: pictures need no memory, and what Python cannot read costs no row.
        delimiter: between the cells of a `csv`.

    Raises:
        DataError: the file is damaged, or does not name its columns once each.
        StorageError: it cannot be read.
    """
    match kind:
        case "csv" | "tsv":
            yield from _separated(uri, kind, names, delimiter)
        case "jsonl":
            yield from _json_lines(uri)
        case "parquet":
            yield from _parquet(uri, columns)
        case "datasets":
            yield from _arrow_folder(uri, columns)
        case _:
            raise ValueError(f"kind must be that of a table, got {kind!r}")


def read_lines(uri: str, newline: str = "\n") -> Iterator[str]:
    """The lines of a text file with their ends, decompressed and decoded as they are asked for.

    Bytes that are no UTF-8 become lone surrogates, which `is_broken` finds.

    Args:
        uri: the file, `.gz` and `.zst` included.
        newline: what ends a line; `\\n`, `\\r\\n` and `\\r` all do where it is empty, as `csv.reader` wants it.

    Raises:
        DataError: the compressed data is damaged.
        StorageError: it cannot be read.
    """
    with storage.open_input(uri) as stored:
        text = io.TextIOWrapper(decompressed(stored, uri), "utf-8", "surrogateescape", newline)
        try:
            for number, line in enumerate(text):
                yield line if number else line.removeprefix(_BYTE_ORDER_MARK)
        except DamagedError as error:
            raise DataError(f"{uri}: {error}") from error


def is_broken(text: str) -> bool:
    """Whether the text has bytes that were no UTF-8, or characters that cannot be written as such."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _separated(uri: str, kind: Format, names: Sequence[str] | None, delimiter: str) -> Iterator[Row | BadRow]:
    csv.field_size_limit(_LARGEST_CELL)
    # Strict: a quotation mark that is never closed, or closed in the middle of a cell, swallows rows without a word.
    rows = (
        csv.reader(read_lines(uri, newline=""), strict=True, delimiter=delimiter)
        if kind == "csv"
        else _TabReader(read_lines(uri))
    )
    header: list[str] | None = list(names) if names else None
    number = 0
    while True:
        before = number
        try:
            cells = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            number = rows.line_num
            yield BadRow(uri, before + 1, f"the row is no CSV: {error}", max(1, number - before))
            continue
        number = rows.line_num
        # A row of empty cells is a row: what has none of its values is malformed, and counted.
        if not any(cell.strip() for cell in cells) and (len(cells) < 2 or header is None):
            continue
        if header is None:
            header = _header(uri, [cell.strip() for cell in cells])
        elif len(cells) != len(header):
            yield BadRow(uri, number, f"the row must have {len(header)} cells, got {len(cells)}")
        elif any(map(is_broken, cells)):
            yield BadRow(uri, number, "the row must be UTF-8")
        else:
            yield Row(uri, number, dict(zip(header, cells, strict=True)))


class _TabReader:
    """Cells between tabs, quotes being letters, as `csv.reader` gives them. Only `\\n` and `\\r\\n` end lines."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.line_num = 0

    def __next__(self) -> list[str]:
        line = next(self._lines)
        self.line_num += 1
        return line.removesuffix("\n").removesuffix("\r").split("\t")


def _header(uri: str, cells: list[str]) -> list[str]:
    """The names of the columns. One may have none, as pandas writes its index: no spec can mean it."""
    named = [cell for cell in cells if cell]
    if len(set(named)) < len(named):
        raise DataError(
            f"{uri} must begin with a header that names every column once, got {', '.join(map(repr, cells))[:300]}"
        )
    return cells


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, of whose keys none comes twice: nobody can tell which value is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"an object must have every key once, got {', '.join(map(repr, keys))}")
    return found


def _json_lines(uri: str) -> Iterator[Row | BadRow]:
    for number, line in enumerate(read_lines(uri), start=1):
        if not line.strip():
            continue
        if is_broken(line):
            yield BadRow(uri, number, "the line must be UTF-8")
            continue
        try:
            record = json.loads(line, object_pairs_hook=_object)
            # What is no character at all can stand in JSON as an escape, "\ud83d".
            has_half = "\\u" in line and is_broken(json.dumps(record, ensure_ascii=False))
        except (ValueError, RecursionError) as error:
            yield BadRow(uri, number, f"the line must be JSON: {str(error)[:200]}")
            continue
        if has_half:
            yield BadRow(uri, number, "the line must be UTF-8, got half of a surrogate pair")
        elif isinstance(record, dict):
            yield Row(uri, number, record)
        else:
            yield BadRow(uri, number, f"the line must hold an object, got {type(record).__name__}")


def _parquet(uri: str, columns: Collection[str] | None) -> Iterator[Row | BadRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with storage.open_input(uri) as stream:
        try:
            file = pq.ParquetFile(_seekable(stream))
            layout = _Layout.of(uri, file.schema_arrow, columns)
            yield from _records(uri, layout, file.iter_batches(_PARQUET_BATCH_ROWS, columns=layout.read))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{uri} must be a Parquet file: {' '.join(str(error).split())[:300]}") from error


def _arrow_folder(uri: str, columns: Collection[str] | None) -> Iterator[Row | BadRow]:
    """What `datasets.Dataset.save_to_disk` writes: Arrow streams that state.json names; labels by their names."""
    import pyarrow as pa

    state = storage.read_json(storage.join(uri, "state.json"))
    labels = _label_names(uri)
    first = 0
    for file in state.get("_data_files", ()):
        path = storage.join(uri, file["filename"])
        with storage.open_input(path) as stream:
            try:
                batches = pa.ipc.open_stream(stream)
                layout = _Layout.of(path, batches.schema, columns)
                for row in _records(path, layout, (batch.select(layout.read) for batch in batches), labels, first):
                    first = row.line
                    yield row
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise DataError(f"{path} must be an Arrow stream: {' '.join(str(error).split())[:300]}") from error


def split_folders(uri: str) -> dict[str, str]:
    """Splits that a folder of `datasets.DatasetDict.save_to_disk` holds, by name; empty where it is a split itself."""
    index = storage.join(uri, "dataset_dict.json")
    if not storage.exists(index):
        return {}
    return {str(name): storage.join(uri, str(name)) for name in storage.read_json(index).get("splits", ())}


def _label_names(uri: str) -> dict[str, list[str]]:
    """Columns of `ClassLabel`, or lists of them, to the names of their numbers."""
    path = storage.join(uri, "dataset_info.json")
    features = storage.read_json(path).get("features") or {} if storage.exists(path) else {}
    named = {}
    for column, feature in features.items():
        # A list of them is `Sequence` or `List` around the feature, or, as Python has it, a list of that one.
        inner = feature.get("feature", feature) if isinstance(feature, dict) else (feature or [{}])[0]
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel":
            named[column] = list(inner["names"])
    return named


class _Layout(NamedTuple):
    """The columns of a table of Arrow's."""

    names: list[str]
    read: list[str]
    """Those that are read."""
    binary: list[str]
    """Of these, what holds bytes: old writers mark no text as such."""

    @classmethod
    def of(cls, uri: str, schema: Any, columns: Collection[str] | None) -> _Layout:
        names = list(schema.names)
        if len(set(names)) < len(names):
            raise DataError(f"{uri} must name every column once, got {', '.join(map(repr, names))[:300]}")
        # With none of them left there would be no rows to count.
        read = [name for name in names if columns is None or name in columns] or names
        return cls(names, read, [name for name in read if "binary" in str(schema.field(name).type)])


def _records(
    uri: str, layout: _Layout, batches: Any, labels: Mapping[str, list[str]] | None = None, first: int = 0
) -> Iterator[Row | BadRow]:
    number = first
    for batch in batches:
        for values in _python_rows(batch):
            number += 1
            if isinstance(values, str):
                yield BadRow(uri, number, values)
                continue
            for column in layout.binary:
                values[column] = _as_text(values[column])
            for column, names in (labels or {}).items():
                values[column] = _named(values.get(column), names)
            yield Row(uri, number, dict.fromkeys(layout.names) | values)


def _python_rows(batch: Any) -> Iterator[dict[str, Any] | str]:
    """The rows of a batch; in place of one that has no values in Python, what is wrong with it."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError):  # Arrow looks at its text when it is asked for, and takes the batch as one
        rows = [_python_row(batch.slice(index, 1)) for index in range(batch.num_rows)]
    yield from rows


def _python_row(batch: Any) -> dict[str, Any] | str:
    try:
        values: dict[str, Any] = batch.to_pylist()[0]
    except UnicodeDecodeError:
        return "the row must be UTF-8"
    except (ValueError, OverflowError) as error:  # a date after the year 9999, say
        return f"the row must have values that Python has: {' '.join(str(error).split())[:200]}"
    return values


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_text(item) for name, item in value.items()}
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _named(value: Any, labels: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, labels) for item in value]
    if isinstance(value, int) and 0 <= value < len(labels):
        return labels[value]
    return None if value == -1 else value  # how a ClassLabel says that there is none


def _seekable(stream: IO[bytes]) -> IO[bytes]:
    return stream if stream.seekable() else io.BytesIO(stream.read())
