"""Tables as other programs leave them: pandas, DuckDB, Spark, Hugging Face, Excel."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import DataError
from pipelines.specs.task import (
    ClassificationTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
    UserTask,
)
from pipelines.tasks.examples import Answer, QuestionExample, Split, TaggedExample, TextExample
from pipelines.tasks.files import task_files
from pipelines.tasks.read import read_task


def read(kind: type[Any], path: Path, **fields: Any) -> Split:
    """The training split; validation is the same file."""
    task: UserTask = kind.model_validate({"data": {"train": str(path), "validation": str(path)}, **fields})
    return read_task(task, task_files(task.data)).train


def labels_of(split: Split) -> list[Any]:
    return [one.label for one in split.examples if isinstance(one, TextExample)]


def parquet(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "train.parquet")
    return folder / "train.parquet"


@pytest.mark.parametrize("header", [",text,label", "text,label,,"])
def test_a_column_may_have_no_name(tmp_path: Path, header: str) -> None:
    """pandas writes its index so, and Excel what lies beside a table."""
    rows = ["0,good,yes", "1,bad,no"] if header.startswith(",") else ["good,yes,,", "bad,no,,"]
    (tmp_path / "train.csv").write_text("\n".join([header, *rows]) + "\n")
    assert labels_of(read(ClassificationTask, tmp_path / "train.csv")) == ["yes", "no"]


def test_a_header_of_other_bytes_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes("text,label\ngood,yes\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"must have the column 'text', which task\.text names and be UTF-8"):
        read(ClassificationTask, tmp_path / "train.csv")


def test_cells_may_stand_between_semicolons(tmp_path: Path) -> None:
    """As Excel writes them where the comma stands in numbers. It is told where nobody said so."""
    path = tmp_path / "train.csv"
    path.write_text('text;label\n"good; or so";yes\nbad;no\n')
    data = {"train": str(path), "validation": str(path), "delimiter": ";"}
    task = ClassificationTask.model_validate({"data": data})
    assert labels_of(read_task(task, task_files(task.data)).train) == ["yes", "no"]
    with pytest.raises(DataError, match=r"got 'text;label'; data\.delimiter says"):
        read(ClassificationTask, path)


@pytest.mark.parametrize(
    ("kind", "labels", "expected"),
    [
        (ClassificationTask, [Decimal("1.0"), Decimal("2.0")], ["1", "2"]),
        (RegressionTask, [Decimal("0.5"), Decimal("1.0")], [0.5, 1.0]),
        (ClassificationTask, [b"yes", b"no"], ["yes", "no"]),
    ],
)
def test_labels_may_be_decimals_and_bytes(tmp_path: Path, kind: type[Any], labels: list[Any], expected: Any) -> None:
    assert labels_of(read(kind, parquet(tmp_path, text=[b"good", b"bad"], label=labels))) == expected


def test_what_nobody_asks_for_is_not_read(tmp_path: Path) -> None:
    """A time in a zone that this machine does not know, and a day of the year 10 000."""
    when = pa.array([0, 1], pa.timestamp("us", tz="Mars/Olympus"))
    day = pa.array([0, 2_932_897], pa.int32()).cast(pa.date32())
    split = read(ClassificationTask, parquet(tmp_path, when=when, text=["good", "bad"], label=["yes", "no"], day=day))
    assert (labels_of(split), split.num_bad_rows) == (["yes", "no"], 0)


def test_a_column_that_is_missing_is_named_beside_all_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must have the column 'label', .*, got 'when', 'text'"):
        read(ClassificationTask, parquet(tmp_path, when=[1, 2], text=["good", "bad"]))


def test_answers_may_be_a_list_of_objects(tmp_path: Path) -> None:
    """As in SQuAD's own JSON."""
    answers = [[{"text": "oslo", "answer_start": 8}], [{"text": "rome", "answer_start": 8}]]
    path = parquet(
        tmp_path, id=["1", "2"], question=["where ?"] * 2, context=["anna in oslo", "bert in rome"], answers=answers
    )
    found = [one.answers for one in read(QuestionAnsweringTask, path).examples if isinstance(one, QuestionExample)]
    assert found == [(Answer("oslo", 8),), (Answer("rome", 8),)]


def test_a_list_of_named_labels_may_be_written_as_a_list(tmp_path: Path) -> None:
    """As `datasets` writes a feature that was given as `[ClassLabel(…)]`."""
    table = pa.table({"tokens": [["anna", "left"]], "tags": [[1, 0]]})
    with pa.OSFile(str(tmp_path / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    features = {"tags": [{"names": ["O", "B-PER"], "_type": "ClassLabel"}]}
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": features}))
    data = {"format": "datasets", "train": str(tmp_path), "validation": str(tmp_path)}
    task = TokenClassificationTask.model_validate({"data": data, "scheme": "BIO"})
    (example,) = read_task(task, task_files(task.data)).train.examples
    assert isinstance(example, TaggedExample)
    assert example.tags == ("B-PER", "O")


def test_comments_of_germeval_have_a_tab(tmp_path: Path) -> None:
    """And a pound sign may still be a word."""
    sentence = "#\thttp://de.wikipedia.org/wiki/Bern [2009-10-17]\n1\tBern\tB-LOC\tO\n2\tist\tO\tO\n\n"
    (tmp_path / "train.conll").write_text(f"{sentence}#\t#\tO\tO\n")
    split = read(TokenClassificationTask, tmp_path / "train.conll", tokens="2", tags="3", scheme="BIO")
    assert split.num_bad_rows == 0
    assert [one.tokens for one in split.examples if isinstance(one, TaggedExample)] == [("Bern", "ist"), ("#",)]


def test_texts_that_are_taken_for_labels_fill_no_message(tmp_path: Path) -> None:
    """As where the columns were mixed up."""
    for name in ("train", "dev"):
        rows = [{"text": "yes", "label": f"{name} {number} " + "long " * 1000} for number in range(30)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"train": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "dev.jsonl")}
    task = ClassificationTask.model_validate({"data": data})
    with pytest.raises(DataError, match="every label of validation must be one of") as caught:
        read_task(task, task_files(task.data))
    assert len(str(caught.value)) < 2000
