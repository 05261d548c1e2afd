"""Which examples make a split, and what their labels are taken for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
from pipelines.tasks.examples import Example, QuestionExample, Split, TaggedExample, TaskData, TextExample
from pipelines.tasks.files import task_files
from pipelines.tasks.read import overlap, read_task


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def task_of(
    kind: type[UserTask], folder: Path, train: list[dict[str, Any]], fields: dict[str, Any] | None = None, **data: Any
) -> UserTask:
    files = {name: write(folder / f"{name}.jsonl", rows) for name, rows in data.items() if isinstance(rows, list)}
    data = {**data, **files, "train": write(folder / "train.jsonl", train)}
    return kind.model_validate({"data": data, **(fields or {})})


def read(task: UserTask) -> TaskData:
    return read_task(task, task_files(task.data))


def labels_of(split: Split) -> list[Any]:
    return [one.label for one in split.examples if isinstance(one, TextExample)]


def labelled(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": f"text {index}", "label": label} for index, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        ([-1, 0, 1], [-1, 1], ["-1", "1"]),
        (["-1", "0", "1"], ["-1", "1"], ["-1", "1"]),
        ([-1.0, 0.0], [-1.0, -1], ["-1", "-1"]),
        ([0, 1], [-1, 1], [None, "1"]),
        (["no", "yes"], ["-1", "yes"], [None, "yes"]),
    ],
)
def test_minus_one_is_a_label_where_training_data_have_it(
    tmp_path: Path, train: list[Any], test: list[Any], expected: list[Any]
) -> None:
    task = task_of(ClassificationTask, tmp_path, labelled(*train), validation=labelled(*train), test=labelled(*test))
    assert labels_of(read_task(task, task_files(task.data)).test[""]) == expected


@pytest.mark.parametrize(
    ("label_range", "expected"), [((-1.0, 1.0), [-1.0, -1.0, 0.5]), ((0.0, 5.0), [None, None, 0.5])]
)
def test_minus_one_is_a_number_where_the_range_has_it(
    tmp_path: Path, label_range: tuple[float, float], expected: list[Any]
) -> None:
    train = labelled(0.0, 1.0)
    fields = {"label_range": label_range}
    task = task_of(RegressionTask, tmp_path, train, fields, validation=train, test=labelled(-1, "-1.0", 0.5))
    assert labels_of(read_task(task, task_files(task.data)).test[""]) == expected


def test_tags_that_are_all_unknown_are_none(tmp_path: Path) -> None:
    """As a `ClassLabel` of −1 becomes; in training data they are malformed."""
    train = [{"tokens": ["a", "b"], "tags": ["X", "Y"]}]
    silent = [{"tokens": ["a", "b"], "tags": [None, None]}]
    task = task_of(TokenClassificationTask, tmp_path, train, validation=train, test=silent)
    assert read_task(task, task_files(task.data)).test[""].examples[0].tags is None
    task = task_of(TokenClassificationTask, tmp_path, train, validation=silent)
    with pytest.raises(DataError, match="1 of 1"):
        read_task(task, task_files(task.data))


def tags_of(split: Split) -> list[Any]:
    return [one.tags for one in split.examples if isinstance(one, TaggedExample)]


def tagged(*tags: Any) -> list[dict[str, Any]]:
    return [{"tokens": ["a", "b", "c"], "tags": one} for one in tags]


def test_tags_may_be_whole_numbers(tmp_path: Path) -> None:
    """As published sets have them; labels are then in the order of the numbers."""
    train = tagged([0, 10, 0], [2, "10", 0.0])
    data = read(task_of(TokenClassificationTask, tmp_path, train, validation=train))
    assert tags_of(data.train) == [("0", "10", "0"), ("2", "10", "0")]
    assert data.labels == ("0", "2", "10")


def test_tags_that_are_neither_text_nor_whole_numbers_are_malformed(tmp_path: Path) -> None:
    train = tagged([0, 1, 0], [True, 1, 0], [0.5, 1, 0], [None, 1, 0])
    data = read(task_of(TokenClassificationTask, tmp_path, train, validation=train[:1], max_bad_row_fraction=0.9))
    assert (data.train.num_rows, data.train.num_bad_rows) == (4, 3)
    assert data.train.report[0].endswith("column 'tags' must hold a list of texts or whole numbers, got [True, 1, 0]")


@pytest.mark.parametrize(
    ("train", "expected"),
    [([0, 1, 0], None), ([0, 1, -1], ("-1", "-1", "-1"))],
    ids=["no-label", "a-label-of-training"],
)
def test_tags_of_minus_one_alone_are_kept_back(tmp_path: Path, train: list[int], expected: Any) -> None:
    test = tagged([-1, -1, -1], ["-1", None, -1] if expected is None else [-1, -1, -1], [0, 1, 0])
    data = read(task_of(TokenClassificationTask, tmp_path, tagged(train), validation=tagged(train), test=test))
    assert tags_of(data.test[""]) == [expected, expected, ("0", "1", "0")]


def test_all_questions_about_a_text_are_held_out_together(tmp_path: Path) -> None:
    rows = [
        {"id": str(index), "question": f"Which {index}?", "context": f"In Oslo {index % 40}.", "answers": ANSWERS}
        for index in range(400)
    ]
    task = task_of(QuestionAnsweringTask, tmp_path, rows, validation_fraction=0.3)
    found = read_task(task, task_files(task.data))
    train, held_out = contexts(found.train), contexts(found.validation[""])
    assert train
    assert held_out
    assert not train & held_out
    assert len(found.train.examples) + len(found.validation[""].examples) == 400


ANSWERS = {"text": ["Oslo"], "answer_start": [3]}


def contexts(split: Split) -> set[str]:
    return {one.context for one in split.examples if isinstance(one, QuestionExample)}


def both_orders(count: int) -> list[dict[str, Any]]:
    pairs = [(f"text {index}", f"words {index}") for index in range(count)]
    return [
        {"text": one, "other": other, "label": "ab"[place % 2]}
        for place, pair in enumerate(pairs)
        for one, other in (pair, pair[::-1])
    ]


@pytest.mark.parametrize("is_swapped", [True, False])
def test_a_pair_without_order_stays_on_one_side(tmp_path: Path, is_swapped: bool) -> None:
    fields = {"text_pair": "other", "swap_pairs": is_swapped}
    task = task_of(ClassificationTask, tmp_path, both_orders(100), fields, validation_fraction=0.5)
    data = read_task(task, task_files(task.data))
    shared = {unordered(one) for one in data.train.examples} & {unordered(one) for one in data.validation[""].examples}
    assert bool(shared) == (not is_swapped)


def unordered(example: Example) -> frozenset[str | None]:
    assert isinstance(example, TextExample)
    return frozenset((example.text, example.text_pair))


@pytest.mark.parametrize(
    ("is_swapped", "expected"), [(True, ("validation.jsonl:1", "validation.jsonl:2")), (False, ("validation.jsonl:1",))]
)
def test_a_pair_the_other_way_round_is_also_in_training(
    tmp_path: Path, is_swapped: bool, expected: tuple[str, ...]
) -> None:
    train = both_orders(2)[::2]
    validation = [train[0], both_orders(2)[3], {"text": "x", "other": "y", "label": "a"}]
    fields = {"text_pair": "other", "swap_pairs": is_swapped}
    task = task_of(ClassificationTask, tmp_path, train, fields, validation=validation)
    assert overlap(read_task(task, task_files(task.data))) == {"validation": expected}


def choice(folder: Path, choices: list[str], label: Any) -> Split:
    """One row to choose in, behind a sound one."""
    rows = [
        {"text": "?", "choices": ["x"] * len(choices), "label": 0},
        {"text": "?", "choices": choices, "label": label},
    ]
    task = task_of(MultipleChoiceTask, folder, rows, validation=rows[:1], max_bad_row_fraction=0.5)
    return read_task(task, task_files(task.data)).train


@pytest.mark.parametrize(
    ("choices", "label", "expected"),
    [
        (["3", "4", "5", "1"], "1", "got '1', which may be 1 or 3"),
        (["B", "A"], "A", "got 'A', which may be 0 or 1"),
        (["same", "same"], "same", "got 'same', which may be 0 or 1"),
        (["3", "4"], 3, "must be the number, letter or text of one of 2 choices, got '3'"),
        (["3", "4"], -1, "must be the number, letter or text of one of 2 choices, got '-1'"),
    ],
)
def test_a_label_that_may_mean_several_choices_or_none_is_malformed(
    tmp_path: Path, choices: list[str], label: Any, expected: str
) -> None:
    split = choice(tmp_path, choices, label)
    assert split.num_bad_rows == 1
    assert split.report[0].endswith(expected)


@pytest.mark.parametrize(
    ("choices", "label", "expected"),
    [
        (["3", "4", "5", "1"], 1, 1),
        (["3", "4", "5", "1"], 1.0, 1),
        (["3", "4", "5", "1"], "5", 2),
        (["0", "1"], "1", 1),
        (["-1", "7"], "-1", 0),
        (["x", " y "], "y", 1),
    ],
)
def test_a_number_is_an_index_and_text_is_whatever_it_means(
    tmp_path: Path, choices: list[str], label: Any, expected: int
) -> None:
    assert [one.label for one in choice(tmp_path, choices, label).examples] == [0, expected]
