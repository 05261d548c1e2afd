"""Which files make up a task's splits, and how their rows become examples."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from pipelines import storage
from pipelines.errors import DataError
from pipelines.specs.labelled import Format, LabelledData, format_of
from pipelines.storage.wildcards import has_wildcards
from pipelines.tasks.examples import Example, Split
from pipelines.tasks.tables import BadRow, Row, is_broken, read_rows, split_folders

MAX_REPORTED_ROWS = 20
"""Of a split."""
_MAX_KEYS = 100
"""Of JSON lines, told where none of them has the right one."""
_WHOLE_NUMBER = re.compile(r"-?\d{1,100}")
_NONE = "-1"
"""How many data sets say that a test row has no label; of some it is a label."""


class BadValueError(ValueError):
    """A row whose values make no example; the message says why."""


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split."""

    uris: tuple[str, ...]
    kind: Format | None = None
    """Told by each file's name when absent."""
    names: tuple[str, ...] | None = None
    """Of the columns, where the files have no header."""
    delimiter: str = ","
    """Of CSV."""
    has_labels: bool = True
    """Whether a row without a label is malformed."""
    is_whole: bool = False
    """No row may be left out, so an empty text is one too: what is handed in counts them."""


@dataclass(frozen=True)
class TaskFiles:
    """The files of all splits."""

    train: SplitFiles
    validation: Mapping[str, SplitFiles] = field(default_factory=dict)
    """By name; a single one has none."""
    test: Mapping[str, SplitFiles] = field(default_factory=dict)


def task_files(data: LabelledData) -> TaskFiles:
    """The files a spec names: those that a glob finds, and the splits of a folder of `datasets.DatasetDict`.

    Raises:
        DataError: such a folder lacks a split.
        StorageError: it cannot be read, or no file fits a glob.
    """
    if data.format == "datasets" and len(data.train) == 1:
        folders = split_folders(data.train[0])
        if folders:
            return _files_of_dict(data.train[0], folders, data)
    return TaskFiles(
        _split_of(data, data.train),
        {} if data.validation is None else {"": _split_of(data, data.validation)},
        {"": replace(_split_of(data, data.test), has_labels=False)} if data.test else {},
    )


def _split_of(data: LabelledData, uris: tuple[str, ...]) -> SplitFiles:
    """The files in order, each once, though two globs may find it."""
    is_glob = [data.format != "datasets" and has_wildcards(uri) for uri in uris]
    found = [
        [file.uri for file in storage.expand(uri)] if several else [uri]
        for uri, several in zip(uris, is_glob, strict=True)
    ]
    files = tuple(dict.fromkeys(uri for some in found for uri in some))
    return SplitFiles(files, data.format, delimiter=data.delimiter)


def _files_of_dict(uri: str, folders: Mapping[str, str], data: LabelledData) -> TaskFiles:
    def split(*names: str) -> SplitFiles | None:
        found = next((folders[name] for name in names if name in folders), None)
        return None if found is None else SplitFiles((found,), "datasets", has_labels=names[0] != "test")

    train = split("train")
    if train is None:
        raise DataError(f"{uri} must hold a split named 'train', got {', '.join(map(repr, folders))}")
    validation = SplitFiles(data.validation, "datasets") if data.validation else split("validation", "dev", "valid")
    if data.test is None:
        test = split("test")
    else:
        test = SplitFiles(data.test, "datasets", has_labels=False) if data.test else None
    return TaskFiles(train, {} if validation is None else {"": validation}, {} if test is None else {"": test})


def read_split(
    files: SplitFiles,
    make: Callable[[Row], Example],
    columns: Mapping[str, str],
    optional: frozenset[str],
    others: Collection[str] = (),
) -> Split:
    """The examples of a tabular split.

    Args:
        files: read in order.
        make: from a row to an example; raises `BadValueError` where the row makes none.
        columns: field of the spec to the column it names; all must be there.
        optional: fields whose column may be absent from a split without labels.
        others: columns that `make` looks at too, where they are there.

    Raises:
        DataError: a column is missing, a file is empty or damaged.
        StorageError: a file cannot be read.
    """
    needed = {name: column for name, column in columns.items() if files.has_labels or name not in optional}
    examples, report, num_rows = [], _Report(), 0
    for uri in files.uris:
        before = num_rows
        for row in _rows_with(needed, uri, files, {*columns.values(), *others}):
            if isinstance(row, BadRow):
                num_rows += row.num_lines
                report.add(row)
                continue
            num_rows += 1
            try:
                examples.append(make(row))
            except BadValueError as error:
                report.add(BadRow(row.uri, row.line, str(error)))
        if num_rows == before:
            raise DataError(f"{uri} must hold examples, got no row")
    return Split(tuple(examples), num_rows, report.num_rows, tuple(report.lines))


def _rows_with(
    columns: Mapping[str, str], uri: str, files: SplitFiles, looked_at: Collection[str]
) -> Iterator[Row | BadRow]:
    """The rows of a file that has the columns: a table in its first row, JSON lines, which have no header, in any."""
    kind = files.kind or format_of(uri)
    assert kind is not None  # the spec sees to it
    missing = dict(columns)
    found: dict[str, None] = {}
    for row in read_rows(uri, kind, files.names, looked_at, files.delimiter):
        if missing and isinstance(row, Row):
            missing = {name: column for name, column in missing.items() if column not in row.values}
            if len(found) < _MAX_KEYS:
                found.update(dict.fromkeys(row.values))
            if kind != "jsonl":
                _check_columns(uri, missing, found)
        yield row
    if found:
        _check_columns(uri, missing, found)


def _check_columns(uri: str, missing: Mapping[str, str], found: Iterable[str]) -> None:
    for name, column in missing.items():
        has = ", ".join(map(repr, found))
        encoding = " and be UTF-8" if any(map(is_broken, found)) else ""
        is_one = len(tuple(found)) == 1 and any(mark in has for mark in ";|\t")
        hint = "; data.delimiter says what stands between the cells of CSV" if is_one else ""
        raise DataError(
            f"{uri} must have the column {column!r}, which task.{name} names{encoding}, got {has[:500]}{hint}"
        )


class _Report:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.num_rows = 0

    def add(self, row: BadRow) -> None:
        self.num_rows += row.num_lines
        if len(self.lines) < MAX_REPORTED_ROWS:
            self.lines.append(str(row))


def split_of(files: SplitFiles, read: Callable[[str], Iterator[Example | BadRow]]) -> Split:
    """The examples of files that are no tables.

    Raises:
        DataError: a file holds no example.
    """
    examples: list[Example] = []
    report = _Report()
    for uri in files.uris:
        before = len(examples) + report.num_rows
        for item in read(uri):
            if isinstance(item, BadRow):
                report.add(item)
            else:
                examples.append(item)
        if len(examples) + report.num_rows == before:
            raise DataError(f"{uri} must hold examples, got none")
    return Split(tuple(examples), len(examples) + report.num_rows, report.num_rows, tuple(report.lines))


def check_bad_rows(name: str, split: Split, limit: float) -> None:
    """Raise `DataError`, with the report, where more than `limit` of a split's rows are malformed, or all are."""
    if split.num_bad_rows > limit * split.num_rows:
        raise DataError(
            f"data.max_bad_row_fraction must be at least the share of malformed rows in {name}, "
            f"got {limit:g} and {split.num_bad_rows} of {split.num_rows}",
            split.report,
        )
    if not split.examples:
        raise DataError(f"{name} must hold examples, got {split.num_rows} rows that are all malformed", split.report)


def text_of(row: Row, column: str, *, may_be_empty: bool = False) -> str:
    """A cell that must be text."""
    value = row.values.get(column)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str):
        raise BadValueError(f"column {column!r} must hold text, got {_shown(value)}")
    if is_broken(value):
        raise BadValueError(f"column {column!r} must be UTF-8")
    if not value.strip() and not may_be_empty:
        raise BadValueError(f"column {column!r} must hold text, got none")
    return value


def texts_of(row: Row, column: str) -> tuple[str, ...]:
    """A cell that must be a list of texts."""
    value = row.values.get(column)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise BadValueError(f"column {column!r} must hold a list of texts, got {_shown(value)}")
    if any(map(is_broken, value)):
        raise BadValueError(f"column {column!r} must be UTF-8")
    return tuple(value)


def tags_of(row: Row, column: str, *, is_needed: bool, known: Collection[str] = ()) -> tuple[str, ...] | None:
    """The labels of words, a list of texts or whole numbers, which become text.

    Args:
        row: what holds them.
        column: where.
        is_needed: whether a row without them is malformed. Where it is not, no list says that there are none, and one
            of −1 or missing values alone.
        known: labels of the training data; −1 is one where it is among them.
    """
    value = row.values.get(column)
    tags = list(map(_tag, value)) if isinstance(value, list | tuple) else None
    nothing = (None,) if _NONE in known else (None, _NONE)
    if not is_needed and (value is None or (tags is not None and all(tag in nothing for tag in tags))):
        return None
    if tags is None or not all(isinstance(tag, str) for tag in tags):
        raise BadValueError(f"column {column!r} must hold a list of texts or whole numbers, got {_shown(value)}")
    if any(map(is_broken, tags)):
        raise BadValueError(f"column {column!r} must be UTF-8")
    return tuple(tags)


def _tag(value: Any) -> Any:
    whole = _whole(value)
    return str(whole) if isinstance(whole, int) and not isinstance(whole, bool) else value


def label_of(row: Row, column: str, *, is_needed: bool, known: Collection[str] = ()) -> str | None:
    """The name of a class; numbers and booleans become text.

    Args:
        row: what holds it.
        column: where.
        is_needed: whether a row without one is malformed. Where it is not, −1 says that there is none.
        known: labels of the training data; −1 is one where it is among them.
    """
    value = _whole(row.values.get(column))
    if isinstance(value, bool | int):
        value = str(value).lower()
    if isinstance(value, str) and value.strip() and not is_broken(value):
        label = value.strip()
        return None if label == _NONE and not is_needed and _NONE not in known else label
    if is_needed:
        raise BadValueError(f"column {column!r} must hold a label, got {_shown(value)}")
    return None


def _whole(value: Any) -> Any:
    """A whole number as such, however it is written; anything else as it is."""
    is_number = isinstance(value, float | Decimal) and math.isfinite(value)
    return int(value) if is_number and value == int(value) else value


def number_of(row: Row, column: str, label_range: tuple[float, float], *, is_needed: bool) -> float | None:
    """A label that must be a number in a range; where none is needed, −1 outside of it says that there is none."""
    low, high = label_range
    value = row.values.get(column)
    try:
        number = (
            float(value) if isinstance(value, int | float | Decimal | str) and not isinstance(value, bool) else math.nan
        )
    except (ValueError, OverflowError):
        number = math.nan
    if low <= number <= high:
        return number
    if not is_needed and (number == float(_NONE) or not math.isfinite(number)):
        return None
    if math.isfinite(number):
        raise BadValueError(f"column {column!r} must be from {low:g} to {high:g} (task.label_range), got {number:g}")
    raise BadValueError(f"column {column!r} must hold a number, got {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def labels_of(examples: Iterable[Example], given: tuple[str, ...] | None) -> tuple[str, ...]:
    """Labels in the order of the model's outputs: those the spec gives, or those of the training examples, sorted.

    Raises:
        DataError: there is one label alone.
    """
    if given is not None:
        return given
    seen: set[str] = set()
    for example in examples:
        tags = getattr(example, "tags", None)
        label = getattr(example, "label", None)
        seen.update(tags or ())
        if isinstance(label, str):
            seen.add(label)
    if len(seen) < 2:
        raise DataError(
            f"the training examples must have at least two labels, got {', '.join(map(repr, seen)) or 'none'}"
        )
    return tuple(sorted(seen, key=_place_of))


def _place_of(label: str) -> tuple[bool, int, str]:
    """Numbers come first and in their own order: -1 before 1, and 2 before 10."""
    is_number = _WHOLE_NUMBER.fullmatch(label) is not None
    return not is_number, int(label) if is_number else 0, label
