"""Rows out of tables: a stream, and line by line what is wrong with them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import DataError
from pipelines.specs.labelled import Format
from pipelines.specs.task import ClassificationTask
from pipelines.tasks.examples import TaskData
from pipelines.tasks.files import task_files
from pipelines.tasks.read import read_task
from pipelines.tasks.tables import BadRow, Row, read_rows

FIRST: dict[Format, tuple[str, str]] = {
    "csv": ("text,label\n", 'good,"yes"\n'),
    "tsv": ("text\tlabel\n", "good\tyes\n"),
    "jsonl": ("", '{"text": "good", "label": "yes"}\n'),
}


@pytest.mark.parametrize("kind", FIRST)
def test_rows_come_before_the_file_has_been_read(tmp_path: Path, kind: Format) -> None:
    """A file that is cut off gives what stands before the cut, and then says so."""
    header, row = FIRST[kind]
    path = tmp_path / f"train.{kind}.gz"
    path.write_bytes(gzip.compress((header + row * 100_000).encode())[:-100])
    rows = read_rows(str(path), kind)
    first = next(rows)
    assert isinstance(first, Row)
    assert first.values == {"text": "good", "label": "yes"}
    with pytest.raises(DataError, match=f"{path.name}: the gzip data is damaged"):
        list(rows)


@pytest.mark.parametrize("kind", FIRST)
def test_what_straddles_a_buffers_end_is_read_whole(tmp_path: Path, kind: Format) -> None:
    """A character of three bytes, and `\\r\\n`; then bytes that are no UTF-8. The mark at the head is none of them."""
    header, row = FIRST[kind]
    path = tmp_path / f"train.{kind}"
    for size in range(8140, 8200):
        text = "x" * (size - len(header)) + "漢"
        sound = row.replace("good", text).replace("\n", "\r\n").encode()
        path.write_bytes(b"\xef\xbb\xbf" + header.encode() + sound + row.encode().replace(b"good", b"g\xffd"))
        first, second = read_rows(str(path), kind)
        assert isinstance(first, Row)
        assert first.values == {"text": text, "label": "yes"}
        assert isinstance(second, BadRow)
        assert second.detail.endswith("must be UTF-8")
        assert second.line == (3 if header else 2)


def test_lines_are_counted_through_cells_of_several(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_bytes(b'text,label\r\n"two\nlines",yes\r\n"three\r\nlines\r",no\r\nalone\r\n')
    two, three, bad = read_rows(str(path), "csv")
    assert isinstance(two, Row)
    assert isinstance(three, Row)
    assert (two.line, two.values["text"]) == (3, "two\nlines")
    assert (three.line, three.values["text"]) == (6, "three\r\nlines\r")
    assert bad == BadRow(str(path), 7, "the row must have 2 cells, got 1")


@pytest.mark.parametrize("line", ['{"text": "\\ud83d"}', '{"\\udc00": 1}', '{"ids": [{"of": "\\uD800"}]}', '"\\ud83d"'])
def test_json_with_half_a_surrogate_pair_is_malformed(tmp_path: Path, line: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(line + '\n{"text": "\\ud83d\\ude00 \\\\ud83d"}\n', encoding="ascii")
    bad, sound = read_rows(str(path), "jsonl")
    assert bad == BadRow(str(path), 1, "the line must be UTF-8, got half of a surrogate pair")
    assert isinstance(sound, Row)
    assert sound.values == {"text": "\U0001f600 \\ud83d"}


@pytest.mark.parametrize(
    "line",
    ['{"text": "a", "label": "yes", "text": "b"}', '{"text": "a", "more": [{"of": 1, "of": 1}]}'],
    ids=["row", "object"],
)
def test_a_key_that_comes_twice_is_malformed(tmp_path: Path, line: str) -> None:
    """As a column is that a CSV names twice: which value is meant?"""
    path = tmp_path / "train.jsonl"
    path.write_text(line + '\n{"text": "a", "more": {"text": "b"}}\n')
    bad, sound = read_rows(str(path), "jsonl")
    assert isinstance(bad, BadRow)
    assert bad.detail.startswith("the line must be JSON: an object must have every key once, got ")
    assert isinstance(sound, Row)


def write_table(folder: Path, kind: Format, table: pa.Table) -> str:
    """As Parquet, or as a folder of `datasets`."""
    if kind == "parquet":
        pq.write_table(table, folder / "train.parquet")
        return str(folder / "train.parquet")
    with pa.OSFile(str(folder / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    return str(folder)


def broken_text(*values: bytes) -> pa.Array:
    """Strings of any bytes: Arrow writes them as they are."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


TABLES: tuple[Format, ...] = ("parquet", "datasets")


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_value_that_is_no_utf8_costs_its_row_alone(tmp_path: Path, kind: Format, is_nested: bool) -> None:
    texts = broken_text(b"good", b"b\xff\xfed", b"fine")
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts) if is_nested else texts
    uri = write_table(tmp_path, kind, pa.table({"text": column, "label": ["yes", "no", "yes"]}))
    first, bad, last = read_rows(uri, kind)
    assert isinstance(first, Row)
    assert isinstance(bad, BadRow)
    assert isinstance(last, Row)
    assert (bad.line, bad.detail) == (2, "the row must be UTF-8")
    assert (last.line, last.values["text"]) == (3, ["fine"] if is_nested else "fine")


@pytest.mark.parametrize("kind", TABLES)
def test_a_value_that_python_does_not_have_costs_its_row_alone(tmp_path: Path, kind: Format) -> None:
    """A day of the year 10 000, which Arrow has."""
    days = pa.array([0, 2_932_897], pa.int32()).cast(pa.date32())
    uri = write_table(tmp_path, kind, pa.table({"text": ["good", "bad"], "day": days}))
    first, bad = read_rows(uri, kind)
    assert isinstance(first, Row)
    assert isinstance(bad, BadRow)
    assert bad.detail.startswith("the row must have values that Python has: ")


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_that_a_table_has_twice_is_refused(tmp_path: Path, kind: Format) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["text", "label", "text"])
    with pytest.raises(DataError, match="must name every column once, got 'text', 'label', 'text'"):
        list(read_rows(write_table(tmp_path, kind, table), kind))


@pytest.mark.parametrize(("kind", "between"), [("csv", ","), ("tsv", "\t")])
def test_a_row_of_empty_cells_is_malformed_and_an_empty_line_is_none(
    tmp_path: Path, kind: Format, between: str
) -> None:
    rows = ["text,label", "", "good,yes", ",", " , ", "", "  ", ",,", "bad,no", ""]
    table = "\n".join(rows).replace(",", between)
    train = read(tmp_path, table, f"train.{kind}", max_bad_row_fraction=0.9).train
    assert (len(train.examples), train.num_bad_rows, train.num_rows) == (2, 3, 5)
    problems = [line.partition(f"train.{kind}:")[2] for line in train.report]
    assert problems[:2] == [
        "4: column 'label' must hold a label, got ''",
        "5: column 'label' must hold a label, got ' '",
    ]
    assert problems[2] == "8: the row must have 2 cells, got 3"


def test_empty_cells_before_a_header_are_passed_over(tmp_path: Path) -> None:
    assert len(read(tmp_path, ",\n\ntext,label\ngood,yes\nbad,no\n", "train.csv").train.examples) == 2


def read(folder: Path, train: str, name: str = "train.jsonl", **data: Any) -> TaskData:
    (folder / name).write_text(train)
    (folder / "dev.csv").write_text("text,label\nfine,yes\npoor,no\n")
    files = {"train": str(folder / name), "validation": str(folder / "dev.csv"), **data}
    task = ClassificationTask.model_validate({"data": files})
    return read_task(task, task_files(task.data))


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in rows)


SOUND = [{"text": "good", "label": "yes"}, {"text": "bad", "label": "no"}]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_json_lines_have_no_header(tmp_path: Path, place: int) -> None:
    """A line without a key is malformed, be it the first; the others are read."""
    rows = [*SOUND[:place], {"text": "what"}, *SOUND[place:]]
    train = read(tmp_path, lines(*rows), max_bad_row_fraction=0.5).train
    assert (len(train.examples), train.num_bad_rows) == (2, 1)
    assert train.report[0].endswith(f"train.jsonl:{place + 1}: column 'label' must hold a label, got None")


def test_a_key_that_no_line_has_is_named_with_those_that_were_found(tmp_path: Path) -> None:
    rows = lines({"text": "a", "category": 1}, {"body": "b"})
    with pytest.raises(
        DataError, match=r"must have the column 'label', which task.label names, got 'text', 'category'"
    ):
        read(tmp_path, "no JSON\n" + rows)
    with pytest.raises(DataError, match="got 'text', 'category', 'body'"):
        read(tmp_path, rows)


def test_a_column_is_looked_for_behind_a_malformed_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must have the column 'label', .* got 'text', 'category'"):
        read(tmp_path, "text,category\nalone\na,b\n", "train.csv", max_bad_row_fraction=1)


def test_lines_that_are_all_malformed_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"got 0.01 and 2 of 2"):
        read(tmp_path, "no JSON\n[]\n")
