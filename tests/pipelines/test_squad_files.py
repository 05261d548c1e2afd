"""Questions that are malformed one by one, in SQuAD's JSON and in tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import DataError
from pipelines.specs.task import QuestionAnsweringTask
from pipelines.tasks.examples import QuestionExample, Split
from pipelines.tasks.files import task_files
from pipelines.tasks.read import read_task
from pipelines.tasks.squad_file import read_squad
from pipelines.tasks.tables import BadRow

CONTEXT = "Oslo is the capital of Norway."
SOUND = {"id": "1", "question": "Which city?", "answers": [{"text": "Oslo", "answer_start": 0}]}
HALF = "\ud83d"
"""Of a surrogate pair: `json.dumps` escapes it, so the file is ASCII."""


def read(folder: Path, questions: list[Any], context: Any = CONTEXT) -> list[QuestionExample | BadRow]:
    path = folder / "squad.json"
    document = {
        "data": [{"paragraphs": [{"context": CONTEXT, "qas": [SOUND]}, {"context": context, "qas": questions}]}]
    }
    path.write_text(json.dumps(document), encoding="ascii")
    return list(read_squad(str(path), is_for_training=True))


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "Oslo", "answer_start": None},
        {"text": "Oslo"},
        {"text": "Oslo", "answer_start": "first"},
        {"text": "Oslo", "answer_start": float("inf")},
        {"text": None, "answer_start": 0},
        {"answer_start": 0},
        "Oslo",
    ],
)
def test_a_malformed_answer_costs_its_question_alone(tmp_path: Path, answer: Any) -> None:
    first, bad, last = read(tmp_path, [{**SOUND, "id": "2", "answers": [answer]}, {**SOUND, "id": "3"}])
    assert isinstance(first, QuestionExample)
    assert isinstance(bad, BadRow)
    assert bad.line == 2
    assert bad.detail.startswith(
        "question 2 must have an id, a question, a context, and answers of a text and a number"
    )
    assert isinstance(last, QuestionExample)


@pytest.mark.parametrize("question", [{}, "which?", None, {**SOUND, "question": None}, {**SOUND, "answers": 5}])
def test_what_is_no_question_is_left_out(tmp_path: Path, question: Any) -> None:
    first, bad = read(tmp_path, [question])
    assert isinstance(first, QuestionExample)
    assert isinstance(bad, BadRow)


@pytest.mark.parametrize("value", ["false", "true", "", 2, [], float("nan")])
def test_what_a_question_says_of_being_impossible_is_true_or_false(tmp_path: Path, value: Any) -> None:
    """A text is neither: "false" would be taken for true."""
    question = {"id": "2", "question": "Which?", "is_impossible": value, "answers": SOUND["answers"]}
    _, bad = read(tmp_path, [question])
    assert isinstance(bad, BadRow)
    assert bad.detail == f"is_impossible must be true, false, 1 or 0, got {value!r}"
    (tmp_path / "all.jsonl").write_text(
        json.dumps({**question, "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [0]}}) + "\n"
    )
    uri = str(tmp_path / "all.jsonl")
    task = QuestionAnsweringTask.model_validate({"data": {"train": uri, "validation": uri}})
    with pytest.raises(DataError, match=r"got 0\.01 and 1 of 1") as failed:
        read_task(task, task_files(task.data))
    assert failed.value.report[0].endswith(bad.detail)


@pytest.mark.parametrize(("value", "expected"), [(1, ()), (True, ()), (0, (("Oslo", 0),)), (None, (("Oslo", 0),))])
def test_a_number_says_it_too(tmp_path: Path, value: Any, expected: Any) -> None:
    _, found = read(tmp_path, [{**SOUND, "id": "2", "is_impossible": value}])
    assert isinstance(found, QuestionExample)
    assert found.answers == expected


def test_a_question_without_an_answer_may_hold_anything_for_one(tmp_path: Path) -> None:
    _, found = read(tmp_path, [{"id": "2", "question": "Which?", "is_impossible": True, "answers": [{"text": "Oslo"}]}])
    assert isinstance(found, QuestionExample)
    assert found.answers == ()


@pytest.mark.parametrize(
    ("changed", "context"),
    [
        ({"id": HALF}, CONTEXT),
        ({"question": f"Which {HALF}?"}, CONTEXT),
        ({"answers": [{"text": HALF, "answer_start": 0}]}, CONTEXT),
        ({}, f"Oslo {HALF}"),
    ],
    ids=["id", "question", "answer", "context"],
)
def test_half_a_surrogate_pair_costs_its_question_alone(tmp_path: Path, changed: dict[str, Any], context: str) -> None:
    """Neither the tokenizer nor a file takes it."""
    first, bad = read(tmp_path, [{**SOUND, "id": "2", **changed}], context)
    assert isinstance(first, QuestionExample)
    assert isinstance(bad, BadRow)
    assert bad.detail.endswith("must be UTF-8, got bytes that are none or half of a character")
    str(bad).encode()


@pytest.mark.parametrize("where", [b"Which city now", b"Bergen is", b'3"', b'Bergen", "answer_start'])
def test_bytes_that_are_no_utf8_cost_their_questions_alone(tmp_path: Path, where: bytes) -> None:
    """Of a question, a context, an id and an answer."""
    bergen = {"id": "3", "question": "Which city now?", "answers": [{"text": "Bergen", "answer_start": 0}]}
    paragraphs = [{"context": CONTEXT, "qas": [SOUND]}, {"context": "Bergen is a city.", "qas": [bergen]}]
    sound = json.dumps({"data": [{"paragraphs": paragraphs}]}).encode()
    place = sound.index(where)
    path = tmp_path / "squad.json"
    path.write_bytes(sound[:place] + b"\xff" + sound[place:])
    first, bad = read_squad(str(path), is_for_training=False)
    assert isinstance(first, QuestionExample)
    assert isinstance(bad, BadRow)
    assert "must be UTF-8" in bad.detail
    str(bad).encode()


def test_what_is_neither_utf8_nor_json_is_told_as_both(tmp_path: Path) -> None:
    path = tmp_path / "squad.json"
    path.write_bytes(json.dumps({"data": []}).encode("utf-16"))
    with pytest.raises(DataError, match="must be UTF-8 and JSON"):
        list(read_squad(str(path), is_for_training=True))


NO_ANSWER = {"answers": {"text": [], "answer_start": []}}


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        ([{}], [NO_ANSWER, NO_ANSWER], [None, None]),
        ([{}], [NO_ANSWER, {}], [None, 1]),
        ([{}], [{**NO_ANSWER, "is_impossible": True}, {}], [0, 1]),
        ([{}, NO_ANSWER], [NO_ANSWER, NO_ANSWER], [None, None]),
        ([{}, NO_ANSWER], [NO_ANSWER, {}], [0, 1]),
        ([{}, NO_ANSWER], [{**NO_ANSWER, "is_impossible": False}, {}], [None, 1]),
        ([{}, NO_ANSWER], [{"answers": None}, {}], [None, 1]),
    ],
)
@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_an_empty_list_of_answers_says_that_they_are_kept_back(
    tmp_path: Path, kind: str, train: list[dict[str, Any]], test: list[dict[str, Any]], expected: list[int | None]
) -> None:
    """Of a test set, unless it says "impossible", or has answers besides as the training data have."""
    files = {"train": train, "validation": [{}, NO_ANSWER], "test": test}
    data = {name: write(tmp_path / f"{name}.{kind}", rows) for name, rows in files.items()}
    task = QuestionAnsweringTask.model_validate({"data": data})
    found = read_task(task, task_files(task.data))
    assert numbers_of_answers(found.test[""]) == expected
    assert numbers_of_answers(found.validation[""]) == [1, 0]


def write(path: Path, changes: list[dict[str, Any]]) -> str:
    """Questions about one text, in SQuAD's JSON or as a table."""
    rows = [row(str(index), **changed) for index, changed in enumerate(changes)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        return str(path)
    for one in rows:
        given = one["answers"] and zip(one["answers"]["text"], one["answers"]["answer_start"], strict=True)
        one["answers"] = given and [{"text": text, "answer_start": start} for text, start in given]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": rows}]}]}))
    return str(path)


def numbers_of_answers(split: Split) -> list[int | None]:
    questions = [one for one in split.examples if isinstance(one, QuestionExample)]
    return [None if one.answers is None else len(one.answers) for one in questions]


def row(identifier: str, **changed: Any) -> dict[str, Any]:
    answers = {"text": ["Oslo"], "answer_start": [0]}
    return {"id": identifier, "question": "Which city?", "context": CONTEXT, "answers": answers, **changed}


@pytest.mark.parametrize(
    "changed",
    [
        {"answers": {"text": [HALF], "answer_start": [0]}},
        {"answers": {"text": ["Oslo"], "answer_start": [None]}},
        {"answers": {"text": ["Oslo"], "answer_start": [float("inf")]}},
        {"answers": {"text": [None], "answer_start": [0]}},
        {"answers": "Oslo"},
        {"id": f"2{HALF}"},
        {"context": HALF},
    ],
)
def test_a_malformed_question_of_a_table_is_one_bad_row(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (row("1"), row("2", **changed))), encoding="ascii")
    data = {"train": str(path), "validation": str(path), "max_bad_row_fraction": 0.5}
    task = QuestionAnsweringTask.model_validate({"data": data})
    train = read_task(task, task_files(task.data)).train
    assert (len(train.examples), train.num_bad_rows) == (1, 1)
    assert train.report[0].startswith(f"{path}:2: ")


def test_a_paragraph_without_context_is_no_layout_of_squads(tmp_path: Path) -> None:
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"qas": [SOUND]}]}]}))
    with pytest.raises(DataError, match=r"must have SQuAD's layout .* got KeyError 'context' at question 1"):
        list(read_squad(str(path), is_for_training=True))
