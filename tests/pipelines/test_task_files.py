"""Labelled files of every format, sound and broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import DataError
from pipelines.specs.task import (
    ClassificationTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
    UserTask,
)
from pipelines.tasks.examples import ChoiceExample, QuestionExample, TaggedExample, TaskData, TextExample
from pipelines.tasks.files import task_files
from pipelines.tasks.read import overlap, read_task

ROWS = [("good", "yes"), ('a "quoted", text', "no"), ("two\nlines", "yes"), ("bad", "no")]
CSV = 'text,label\ngood,yes\n"a ""quoted"", text",no\n"two\nlines",yes\nbad,no\n'


def read(task: UserTask) -> TaskData:
    return read_task(task, task_files(task.data))


def classification(folder: Path, train: str | bytes, name: str = "train.csv", **fields: Any) -> ClassificationTask:
    """A task whose validation file is sound."""
    (folder / name).write_bytes(train.encode() if isinstance(train, str) else train)
    (folder / "dev.csv").write_text("text,label\nfine,yes\npoor,no\n")
    data = {"train": str(folder / name), "validation": str(folder / "dev.csv"), **fields.pop("data", {})}
    return ClassificationTask.model_validate({"data": data, **fields})


def texts(data: TaskData) -> list[tuple[str, Any]]:
    return [(one.text, one.label) for one in data.train.examples if isinstance(one, TextExample)]


def test_csv_has_quotes_and_line_ends_in_cells(tmp_path: Path) -> None:
    assert texts(read(classification(tmp_path, CSV))) == ROWS


def test_tsv_has_no_quotes(tmp_path: Path) -> None:
    """A quotation mark is a letter, as in GLUE's files."""
    found = read(classification(tmp_path, 'text\tlabel\n"open\tyes\nclosed"\tno\n', "train.tsv"))
    assert texts(found) == [('"open', "yes"), ('closed"', "no")]


def test_json_lines_and_compressed_files(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text, "label": label}) for text, label in ROWS)
    assert texts(read(classification(tmp_path, lines, "train.jsonl"))) == ROWS
    assert texts(read(classification(tmp_path, gzip.compress(CSV.encode()), "train.csv.gz"))) == ROWS


def test_a_glob_finds_the_parts_of_a_split(tmp_path: Path) -> None:
    """In order of their names, and none twice."""
    for number, (text, label) in enumerate(ROWS):
        (tmp_path / f"part-{number}.jsonl").write_text(json.dumps({"text": text, "label": label}) + "\n")
    data = {"train": [str(tmp_path / "part-*.jsonl"), str(tmp_path / "part-[01].jsonl")]}
    assert texts(read(classification(tmp_path, "", "unused.csv", data=data))) == ROWS


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]})
    pq.write_table(table, tmp_path / "train.parquet")
    task = classification(tmp_path, (tmp_path / "train.parquet").read_bytes(), "train.parquet")
    assert texts(read(task)) == ROWS


def test_a_folder_of_datasets_with_named_labels(tmp_path: Path) -> None:
    """All splits in one folder, as `DatasetDict.save_to_disk` leaves them; numbers become their names."""
    for split, labels in (("train", [1, 0, 1]), ("validation", [0, 1]), ("test", [-1])):
        folder = tmp_path / "set" / split
        folder.mkdir(parents=True)
        table = pa.table({"text": [f"{split} {index}" for index in range(len(labels))], "label": labels})
        with (
            pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as writer,
        ):
            writer.write_table(table)
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
        features = {
            "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
            "text": {"dtype": "string", "_type": "Value"},
        }
        (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (tmp_path / "set" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation", "test"]}))
    task = ClassificationTask.model_validate({"data": {"format": "datasets", "train": str(tmp_path / "set")}})
    found = read(task)
    assert texts(found) == [("train 0", "pos"), ("train 1", "neg"), ("train 2", "pos")]
    assert found.labels == ("neg", "pos")
    assert [one.label for one in found.test[""].examples] == [None]


def test_numbers_are_labels_in_their_own_order(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": f"t{label}", "label": label}) for label in (10, 2, 1))
    task = classification(tmp_path, lines, "train.jsonl", data={"validation": None, "validation_fraction": 0.5})
    (tmp_path / "dev.jsonl").write_text('{"text": "x", "label": 2}\n')
    task = ClassificationTask.model_validate(
        {"data": {"train": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "dev.jsonl")}}
    )
    assert read(task).labels == ("1", "2", "10")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ((1, -1), ("-1", "1")),
        ((10, 0, -2, -10), ("-10", "-2", "0", "10")),
        (("b", 2, "-", -1), ("-1", "2", "-", "b")),
        (("1", "-" + "9" * 5000), ("1", "-" + "9" * 5000)),
    ],
)
def test_negative_numbers_come_before_positive_ones(tmp_path: Path, labels: Any, expected: tuple[str, ...]) -> None:
    """F1 is that of the second of two labels, so it must not be -1's. What no number could be is a name."""
    rows = "".join(json.dumps({"text": f"t{label}", "label": label}) + "\n" for label in labels)
    (tmp_path / "train.jsonl").write_text(rows)
    data = {"train": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "train.jsonl")}
    assert read(ClassificationTask.model_validate({"data": data})).labels == expected


def test_without_a_validation_file_equal_texts_stay_on_one_side(tmp_path: Path) -> None:
    rows = "".join(f"text {index % 40},{'ab'[index % 2]}\n" for index in range(200))
    (tmp_path / "all.csv").write_text("text,label\n" + rows)
    task = ClassificationTask.model_validate({"data": {"train": str(tmp_path / "all.csv"), "validation_fraction": 0.3}})
    found = read(task)
    assert len(found.train.examples) + len(found.validation[""].examples) == 200
    assert 0.1 < len(found.validation[""].examples) / 200 < 0.6
    assert overlap(found) == {"validation": ()}


def test_what_validation_shares_with_training_is_named(tmp_path: Path) -> None:
    found = read(classification(tmp_path, "text,label\nfine,yes\nbad,no\n"))
    assert overlap(found) == {"validation": ("dev.csv:2",)}


def test_fewer_training_examples_are_the_same_ones_every_time(tmp_path: Path) -> None:
    rows = "text,label\n" + "".join(f"text {index},{'ab'[index % 2]}\n" for index in range(50))
    task = classification(tmp_path, rows, data={"max_train_examples": 20, "validation": None})
    first, second = read(task), read(task)
    assert len(first.train.examples) == 20
    assert first.train == second.train


CONLLU = (
    "# text = I go to-day\n1\tI\t_\tPRON\tPRP\t_\t2\t_\t_\t_\n2-3\tgoto\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "2\tgo\t_\tVERB\tVBP\t_\t0\t_\t_\t_\n2.1\tx\t_\tX\tX\t_\t_\t_\t_\t_\n3\tto-day\t_\tNOUN\tNN\t_\t2\t_\t_\t_\n\n"
    "1\tYes\t_\tINTJ\tUH\t_\t0\t_\t_\t_\n"
)


def test_conllu_leaves_out_joined_words_and_empty_nodes(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        (tmp_path / f"{name}.conllu").write_text(CONLLU)
    data = {"train": str(tmp_path / "train.conllu"), "validation": str(tmp_path / "dev.conllu")}
    found = read(TokenClassificationTask.model_validate({"data": data}))
    first, second = (one for one in found.train.examples if isinstance(one, TaggedExample))
    assert (first.tokens, first.tags) == (("I", "go", "to-day"), ("PRON", "VERB", "NOUN"))
    assert (second.tokens, second.tags) == (("Yes",), ("INTJ",))
    fine = read(TokenClassificationTask.model_validate({"data": data, "tags": "xpos"}))
    assert fine.labels == ("NN", "PRP", "UH", "VBP")


@pytest.mark.parametrize("number", ["x2", "2-", "", "2.", "-2", "2-3-4"])
def test_a_word_of_conllu_must_have_a_number(tmp_path: Path, number: str) -> None:
    """It would vanish, and the sentence be learned without it."""
    broken = CONLLU.replace("\n2\tgo", f"\n{number}\tgo")
    assert broken != CONLLU
    (tmp_path / "train.conllu").write_text(broken)
    uri = str(tmp_path / "train.conllu")
    data = {"train": uri, "validation": uri, "max_bad_row_fraction": 0.5}
    train = read(TokenClassificationTask.model_validate({"data": data, "labels": ["INTJ", "X"]})).train
    assert (len(train.examples), train.num_bad_rows) == (1, 1)
    expected = f"train.conllu:1: line 4 must begin with a number, such as 3, 3-4 or 5.1, got {number!r}"
    assert train.report[0].endswith(expected)


def test_conll_takes_the_first_and_the_last_column(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP B-ORG\nofficial NN I-NP O\n\nOslo NNP B-NP B-LOC\n"
    for name in ("train", "dev"):
        (tmp_path / f"{name}.conll").write_text(text)
    data = {"train": str(tmp_path / "train.conll"), "validation": str(tmp_path / "dev.conll")}
    found = read(TokenClassificationTask.model_validate({"data": data, "scheme": "BIO"}))
    assert [one.tags for one in found.train.examples] == [("B-ORG", "O"), ("B-LOC",)]
    chunks = read(TokenClassificationTask.model_validate({"data": data, "tags": "2"}))
    assert chunks.labels == ("NN", "NNP")


def squad(questions: list[dict[str, Any]], context: str = "Oslo is the capital of Norway.") -> str:
    return json.dumps({"data": [{"title": "x", "paragraphs": [{"context": context, "qas": questions}]}]})


ANSWERED = {"id": "1", "question": "Which city?", "answers": [{"text": "Oslo", "answer_start": 0}]}


def questions(folder: Path, train: str, dev: str | None = None, **fields: Any) -> QuestionAnsweringTask:
    (folder / "train.json").write_text(train)
    (folder / "dev.json").write_text(dev or squad([ANSWERED]))
    data = {"train": str(folder / "train.json"), "validation": str(folder / "dev.json"), **fields}
    return QuestionAnsweringTask.model_validate({"data": data})


def test_squad_files_of_both_versions(tmp_path: Path) -> None:
    none = {"id": "2", "question": "Which river?", "answers": [], "is_impossible": True}
    found = read(questions(tmp_path, squad([ANSWERED, none])))
    first, second = (one for one in found.train.examples if isinstance(one, QuestionExample))
    assert first.answers is not None
    assert first.answers[0] == ("Oslo", 0)
    assert second.answers == ()


def test_questions_in_a_table(tmp_path: Path) -> None:
    row = {"id": "7", "question": "Which?", "context": "In Oslo.", "answers": {"text": ["Oslo"], "answer_start": [3]}}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    data = {"train": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "train.jsonl")}
    found = read(QuestionAnsweringTask.model_validate({"data": data}))
    assert found.train.examples[0] == QuestionExample("7", "Which?", "In Oslo.", (("Oslo", 3),))


@pytest.mark.parametrize("label", [1, "1", "B", "b", "second"])
def test_a_choice_is_named_by_number_letter_or_text(tmp_path: Path, label: Any) -> None:
    row = {"text": "Which?", "choices": ["first", "second", "third"], "label": label}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    data = {"train": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "train.jsonl")}
    found = read(MultipleChoiceTask.model_validate({"data": data})).train.examples[0]
    assert isinstance(found, ChoiceExample)
    assert found.label == 1


def test_choices_in_columns_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,a,b,label\nWhich?,first,second,B\n")
    data = {"train": str(tmp_path / "train.csv"), "validation": str(tmp_path / "train.csv")}
    found = read(MultipleChoiceTask.model_validate({"data": data, "choices": ["a", "b"]})).train.examples[0]
    assert found == ChoiceExample("train.csv:2", "Which?", ("first", "second"), 1)


def refusal(task: UserTask) -> DataError:
    with pytest.raises(DataError) as error:
        read(task)
    return error.value


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ("", "train.csv must hold examples, got no row"),
        ("text,label\n", "train.csv must hold examples, got no row"),
        ("text,category\na,b\n", "must have the column 'label', which task.label names, got 'text', 'category'"),
        ("text,text\na,b\n", "must begin with a header that names every column once"),
        ("text,label\na,yes\nb,yes\n", "must have at least two labels, got 'yes'"),
        (
            "text,label\na,maybe\nb,no\n",
            "every label of validation must be one of 'maybe', 'no', got 'yes' at dev.csv:2",
        ),
        (b"text,label\na,yes\n\xff\xfe,no\nb,no\n", "got 0.01 and 1 of 3"),
        ("text,label\na,yes\nb\nc,no\n", "got 0.01 and 1 of 3"),
        ("text,label\na,yes\n,no\nc,no\n", "got 0.01 and 1 of 3"),
        ("text,label\na,yes\nb,\nc,no\n", "got 0.01 and 1 of 3"),
    ],
    ids=[
        "empty",
        "header-only",
        "column",
        "doubled-column",
        "one-class",
        "unseen",
        "encoding",
        "cells",
        "no-text",
        "no-label",
    ],
)
def test_bad_data_is_named(tmp_path: Path, train: str | bytes, expected: str) -> None:
    assert expected in str(refusal(classification(tmp_path, train)))


def test_bad_rows_are_reported_by_file_and_line(tmp_path: Path) -> None:
    error = refusal(classification(tmp_path, b"text,label\na,yes\n\xff\xfe,no\nb,no\nc\n"))
    assert error.report[0].endswith("train.csv:3: the row must be UTF-8")
    assert error.report[1].endswith("train.csv:5: the row must have 2 cells, got 1")


def test_a_few_bad_rows_are_left_out_where_that_is_allowed(tmp_path: Path) -> None:
    task = classification(tmp_path, "text,label\na,yes\nb\nc,no\n", data={"max_bad_row_fraction": 0.5})
    found = read(task)
    assert (len(found.train.examples), found.train.num_bad_rows) == (2, 1)


def test_a_label_that_training_lacks_may_be_listed(tmp_path: Path) -> None:
    found = read(classification(tmp_path, "text,label\na,maybe\nb,no\n", labels=("yes", "no", "maybe")))
    assert found.labels == ("yes", "no", "maybe")


def test_an_answer_that_is_not_in_its_context(tmp_path: Path) -> None:
    """For training it is malformed; for scoring its text is all that counts."""
    wrong = {**ANSWERED, "answers": [{"text": "Bergen", "answer_start": 0}]}
    error = refusal(questions(tmp_path, squad([wrong])))
    assert "got 'Bergen' at 0, where 'Oslo i' stands" in error.report[0]
    kept = read(questions(tmp_path, squad([ANSWERED]), squad([wrong]))).validation[""].examples[0]
    assert isinstance(kept, QuestionExample)
    assert kept.answers == (("Bergen", 0),)


@pytest.mark.parametrize("content", ["[]", "{}", '{"data": [{"paragraphs": [{"qas": [{}]}]}]}', "{"])
def test_what_is_not_squads_layout_is_refused(tmp_path: Path, content: str) -> None:
    message = str(refusal(questions(tmp_path, content)))
    assert "must have SQuAD's layout" in message or "must be JSON" in message


def test_numbers_out_of_range_are_malformed(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,0.5\nb,7\nc,nan\n")
    data = {"train": str(tmp_path / "train.csv"), "validation": str(tmp_path / "train.csv")}
    error = refusal(RegressionTask.model_validate({"data": data}))
    assert "must be from 0 to 1 (task.label_range), got 7" in error.report[0]
    assert "must hold a number, got 'nan'" in error.report[1]


def test_tags_must_be_as_many_as_words(tmp_path: Path) -> None:
    lines = [{"tokens": ["a", "b"], "tags": ["X"]}, {"tokens": ["a"], "tags": ["Y"]}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = {"train": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "train.jsonl")}
    error = refusal(TokenClassificationTask.model_validate({"data": data}))
    assert "must have a label for each of 2 words, got 1" in error.report[0]


def test_span_labels_must_have_their_marks(tmp_path: Path) -> None:
    lines = [{"tokens": ["a", "b"], "tags": ["B-X", "PER"]}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = {"train": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "train.jsonl")}
    assert "got 'PER'" in str(refusal(TokenClassificationTask.model_validate({"data": data, "scheme": "BIO"})))


def test_a_quotation_mark_that_is_never_closed_costs_all_that_it_swallows(tmp_path: Path) -> None:
    """5,000 rows vanish into one cell: they are counted, and the report names the line where it opened."""
    rows = ["text,label", *(f"t{i},{'ab'[i % 2]}" for i in range(200)), '"open,a', *(f"u{i},a" for i in range(5000))]
    error = refusal(classification(tmp_path, "\n".join(rows) + "\n", labels=("a", "b", "yes", "no")))
    assert "got 0.01 and 5001 of 5201" in str(error)
    assert error.report[0].partition("train.csv:")[2].startswith("202: the row is no CSV")


def test_rare_labels_are_known_though_they_are_held_out(tmp_path: Path) -> None:
    rows = "".join(f"text {index},label{index}\n" for index in range(60))
    (tmp_path / "all.csv").write_text("text,label\n" + rows)
    found = read(ClassificationTask.model_validate({"data": {"train": str(tmp_path / "all.csv")}}))
    assert len(found.labels) == 60
    assert len(found.train.examples) < 60
    assert found.validation[""].num_bad_rows == 0


def test_a_question_without_a_word_on_answers_cannot_be_scored(tmp_path: Path) -> None:
    silent = {"id": "2", "question": "Which river?"}
    error = refusal(questions(tmp_path, squad([ANSWERED]), squad([ANSWERED, silent])))
    assert "question '2' must have answers, an empty list where its text has none" in error.report[0]
    (tmp_path / "test.json").write_text(squad([silent]))
    found = read(questions(tmp_path, squad([ANSWERED]), test=str(tmp_path / "test.json")))
    assert found.test[""].examples[0].answers is None


def test_questions_must_have_ids_of_their_own(tmp_path: Path) -> None:
    error = refusal(questions(tmp_path, squad([ANSWERED]), squad([ANSWERED, ANSWERED])))
    assert "every question of validation must have an id of its own (task.identifier), got '1' twice" in str(error)


def test_questions_to_learn_from_may_share_an_id(tmp_path: Path) -> None:
    """Each of two files that are put together may count from 1."""
    assert len(read(questions(tmp_path, squad([ANSWERED, ANSWERED]), squad([ANSWERED]))).train.examples) == 2


def test_minus_one_says_that_a_test_row_has_no_label(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"text": "x", "label": -1}\n')
    data = {"test": str(tmp_path / "test.jsonl")}
    found = read(classification(tmp_path, "text,label\na,yes\nb,no\n", data=data))
    assert found.test[""].examples[0].label is None


def test_a_pound_sign_is_a_word_and_blanks_make_no_columns(tmp_path: Path) -> None:
    text = "# a comment of one sentence\nIt PRP O\ncosts  VBZ O \n# # B-NP\n5 CD I-NP\n"
    for name in ("train", "dev"):
        (tmp_path / f"{name}.conll").write_text(text)
    data = {"train": str(tmp_path / "train.conll"), "validation": str(tmp_path / "dev.conll")}
    found = read(TokenClassificationTask.model_validate({"data": data, "scheme": "BIO"})).train.examples[0]
    assert isinstance(found, TaggedExample)
    assert (found.tokens, found.tags) == (("It", "costs", "#", "5"), ("O", "O", "B-NP", "I-NP"))


def test_words_to_tag_may_come_without_tags(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("It O\nworks B-X\n")
    (tmp_path / "test.conll").write_text("It\nworks\n")
    train, test = str(tmp_path / "train.conll"), str(tmp_path / "test.conll")
    data = {"train": train, "validation": train, "test": test}
    found = read(TokenClassificationTask.model_validate({"data": data, "scheme": "BIO"}))
    assert found.test[""].examples[0] == TaggedExample("test.conll:1", ("It", "works"))


@pytest.mark.parametrize(
    ("test", "fields", "expected"),
    [
        ("It PRP B-NP\nworks VBZ B-VP\n", {}, None),
        ("It PRP B-NP O\nworks VBZ B-VP B-X\n", {}, ("O", "B-X")),
        ("It PRP B-NP\nworks VBZ B-VP\n", {"tags": "4"}, None),
        ("It PRP B-NP _\nworks VBZ B-VP _\n", {}, None),
        ("It PRP B-NP O\nworks VBZ B-VP -\n", {}, None),
    ],
    ids=["column-absent", "column-present", "numbered-column-absent", "placeholder", "one-placeholder"],
)
def test_labels_that_are_kept_back_are_none(
    tmp_path: Path, test: str, fields: dict[str, str], expected: tuple[str, ...] | None
) -> None:
    """The last column of a file that lacks that of the labels is another one."""
    (tmp_path / "train.conll").write_text("It PRP B-NP O\nworks VBZ B-VP B-X\n")
    (tmp_path / "test.conll").write_text(test)
    train = str(tmp_path / "train.conll")
    data = {"train": train, "validation": train, "test": str(tmp_path / "test.conll")}
    found = read(TokenClassificationTask.model_validate({"data": data, "scheme": "BIO", **fields}))
    assert found.test[""].examples[0] == TaggedExample("test.conll:1", ("It", "works"), expected)
    assert found.test[""].num_bad_rows == 0


@pytest.mark.parametrize("name", ["train.json", "train.conllu"])
def test_a_file_that_is_no_table_is_refused_by_the_spec(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="data must be csv, tsv, jsonl, parquet, datasets for this type of task"):
        ClassificationTask.model_validate({"data": {"train": str(tmp_path / name)}})
