"""What lies in the folder of a prepared task, and what is counted on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from finetuning_world import TASKS, TOKENS, toy_task, write_rows

from pipelines.specs.finetune import BaselineSpec
from pipelines.specs.task import ClassificationTask, QuestionAnsweringTask, RegressionTask, TokenClassificationTask
from pipelines.tasks.prepare import PreparedTask, TaskPreparation, prepare_task
from pipelines.tokenizer import bert_tokenizer, save_tokenizer


def prepared(folder: Path, task: Any, max_length: int = 16) -> PreparedTask:
    save_tokenizer(bert_tokenizer({token: index for index, token in enumerate(TOKENS)}, True, None), str(folder))
    return prepare_task(TaskPreparation("toy", task, str(folder), max_length, str(folder / "storage"), BaselineSpec()))


def question(number: int, context: str, answer: str) -> dict[str, Any]:
    answers = {"text": [answer], "answer_start": [context.index(answer)]}
    return {"id": str(number), "question": "where ?", "context": context, "answers": answers}


@pytest.mark.parametrize("field", ["text", "tokens"])
def test_special_tokens_that_a_text_speaks_of_are_text(tmp_path: Path, field: str) -> None:
    """As in pretraining: a "[SEP]" of the text ends none, and a "[MASK]" hides nothing."""
    words = ["the", "[SEP]", "film", "[MASK]", "is", "[CLS]", "good", "[PAD]", "."]
    rows = {
        "text": [{"text": " ".join(words), "label": label} for label in "ab"],
        "tokens": [{"tokens": words, "tags": list("ababababa")}],
    }[field]
    uri = write_rows(tmp_path / "all.jsonl", rows)
    kind = ClassificationTask if field == "text" else TokenClassificationTask
    task = kind.model_validate({"data": {"train": uri, "validation": uri}})
    features = prepared(tmp_path, task, 64).features("train")
    row = features.input_ids[: features.starts[1]].tolist()
    assert [TOKENS[index] for index in row if index in (0, 2, 3, 4)] == ["[CLS]", "[SEP]"]
    assert len(row) == 2 + 5 + 4 * 3  # "[", a word and "]" for each that is spoken of


@pytest.mark.parametrize("kind", TASKS)
def test_references_are_kept_of_what_is_scored(tmp_path: Path, kind: str) -> None:
    found = prepared(tmp_path, toy_task(kind, tmp_path))
    assert {path.name for path in Path(found.uri).glob("*.json")} == {"manifest.json", "test.json", "validation.json"}
    assert len(found.references("test")) == 32


def test_a_context_stands_there_once(tmp_path: Path) -> None:
    context = "anna lives in oslo ."
    rows = [question(number, context, "oslo") for number in range(9)] + [question(9, "bert lives in rome .", "rome")]
    uri = write_rows(tmp_path / "rows.jsonl", rows)
    task = QuestionAnsweringTask.model_validate({"data": {"train": uri, "validation": uri}, "max_query_tokens": 4})
    found = prepared(tmp_path, task)
    assert Path(found.uri, "validation.json").read_text().count(context) == 1
    assert [one["context"] for one in found.references("validation")] == [row["context"] for row in rows]
    assert found.references("validation")[8] == {"id": "8", "label": ["oslo"], "context": context}


def test_questions_whose_answer_fits_into_no_window_are_counted(tmp_path: Path) -> None:
    context = "anna lives in oslo . " * 6
    rows = [question(0, context, "oslo"), question(1, context, context.strip())]
    uri = write_rows(tmp_path / "rows.jsonl", rows)
    task = QuestionAnsweringTask.model_validate({"data": {"train": uri, "validation": uri}, "max_query_tokens": 4})
    found = prepared(tmp_path, task)
    train, validation = found.splits
    assert (train.num_examples, train.num_without_window, train.num_rows) == (1, 1, 2)
    assert (validation.num_examples, validation.num_without_window) == (2, 0)
    assert set(found.features("train").examples.tolist()) == {0}
    assert found.notes[0].startswith("train: questions left out, since their answers fit into no window")


def test_what_is_cut_and_what_has_no_label_is_counted(tmp_path: Path) -> None:
    rows = [{"text": "the film is good .", "label": "good"}, {"text": "bad film " * 20, "label": "bad"}]
    train = write_rows(tmp_path / "train.jsonl", rows * 4)
    test = write_rows(tmp_path / "test.jsonl", [*rows, {"text": "a book .", "label": None}])
    task = ClassificationTask.model_validate({"data": {"train": train, "validation": train, "test": test}})
    found = prepared(tmp_path, task)
    assert [(split.num_labelled, split.num_cut) for split in found.splits] == [(8, 4), (8, 4), (2, 1)]
    assert found.notes[-2:] == (
        "test: examples that are longer than what is read of them: 1 of 3",
        "test: examples that have a label, and that scores are of: 2 of 3",
    )


@pytest.mark.parametrize(("kind", "labels"), [(ClassificationTask, ("good", "bad")), (RegressionTask, (1.0, 0.0))])
def test_a_split_of_one_label_is_told(tmp_path: Path, kind: Any, labels: tuple[Any, Any]) -> None:
    """Its Matthews' correlation is 0 and its F1 0 or 1, whatever the network says."""
    rows = [{"text": f"the film is good {'. ' * index}", "label": labels[index % 2]} for index in range(4)]
    train, dev = write_rows(tmp_path / "train.jsonl", rows), write_rows(tmp_path / "dev.jsonl", rows[::2])
    test = write_rows(tmp_path / "test.jsonl", [rows[1], {"text": "a book ."}])
    found = prepared(tmp_path, kind.model_validate({"data": {"train": train, "validation": dev, "test": test}}))
    told = [note for note in found.notes if "every label is" in note]
    says_nothing = "so that correlations, and figures of other labels, say nothing"
    assert told == [
        f"{name}: every label is {label!r}, {says_nothing}"
        for name, label in zip(("validation", "test"), labels, strict=True)
    ]


def test_examples_that_are_training_examples_too_are_named(tmp_path: Path) -> None:
    """Behind the malformed rows, and no more of them than of these."""
    rows = [{"text": f"the film is good {'. ' * index}", "label": "ab"[index % 2]} for index in range(30)]
    train = write_rows(tmp_path / "train.jsonl", rows)
    validation = write_rows(tmp_path / "dev.jsonl", [{"text": "a book .", "label": None}, *rows[:25]])
    data = {"train": train, "validation": validation, "max_bad_row_fraction": 0.5}
    (split,) = prepared(tmp_path, ClassificationTask.model_validate({"data": data})).splits_of("validation")
    bad, *shared = split.report
    assert bad.endswith("dev.jsonl:1: column 'label' must hold a label, got None")
    assert shared == [f"dev.jsonl:{line}: a training example asks the same" for line in range(2, 22)]
    assert split.num_also_in_training == 25


def test_sentences_without_labels_are_counted(tmp_path: Path) -> None:
    tagged = {"tokens": ["anna", "lives"], "tags": ["A", "B"]}
    train = write_rows(tmp_path / "train.jsonl", [tagged] * 4)
    test = write_rows(tmp_path / "test.jsonl", [tagged, {"tokens": ["anna"]}])
    task = TokenClassificationTask.model_validate({"data": {"train": train, "validation": train, "test": test}})
    (split,) = prepared(tmp_path, task).splits_of("test")
    assert (split.num_examples, split.num_labelled) == (2, 1)


def test_why_a_baseline_is_left_out_is_kept(tmp_path: Path) -> None:
    """With the copy that another job finds, too."""
    rows = [{"text": "?", "label": "a"}, {"text": "!", "label": "b"}]
    uri = write_rows(tmp_path / "rows.jsonl", rows)
    task = ClassificationTask.model_validate({"data": {"train": uri, "validation": uri}})
    first, second = prepared(tmp_path, task), prepared(tmp_path, task)
    assert first.baselines.keys() == {"majority"}
    assert "2 of 2 training examples hold no word" in first.baseline_notes[0]
    assert second.notes == first.notes == first.baseline_notes
    assert json.loads(Path(first.uri, "manifest.json").read_text())["baseline_notes"] == list(first.baseline_notes)
