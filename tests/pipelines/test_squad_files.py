"""Questions that are malformed one by one, in SQuAD's JSON and in tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import DataError
from pipelines.specs.task import QuestionAnsweringTask
from pipelines.tasks.examples import QuestionExample
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
    assert bad.detail.endswith("must be UTF-8, got half of a surrogate pair")
    str(bad).encode()


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
