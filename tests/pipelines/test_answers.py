"""Answers and their scores, where some examples have no label, and what is kept of a network's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from finished_runs import prepared_task, run_of

from electra_core.finetuning.network import ElectraForFinetuning
from pipelines.finetuning.answers import Answers, Outputs, answer, outputs_of
from pipelines.specs.task import (
    ClassificationTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
    UserTask,
)
from pipelines.tasks.features import Features

DATA = {"train": "train.jsonl"}
NO_FEATURES = Features(*[np.zeros(0, np.int32)] * 6)


def features_of(lengths: list[int], **others: Any) -> Features:
    """Rows of any tokens."""
    count = len(lengths)
    return Features(
        input_ids=np.full(sum(lengths), 5, np.int32),
        starts=np.array([0, *np.cumsum(lengths)]),
        num_first=np.array(lengths, np.int32),
        examples=np.arange(count, dtype=np.int32),
        is_cut=np.zeros(count, np.bool_),
        labels=np.zeros(count, np.int64),
        **others,
    )


def answered(task: UserTask, outputs: Outputs, labels: list[Any], features: Features = NO_FEATURES) -> Answers:
    """Of examples with these labels; each has words and a context, of which a task reads what is its own."""
    shared = {"tokens": ["x", "y"], "context": "in oslo"}
    references = [{"id": str(index), "label": label, **shared} for index, label in enumerate(labels)]
    return answer(prepared_task(task, labels=("B-A", "O")), features, outputs, references)


LOGITS = [np.array(row, np.float32) for row in ([2.0, 0.0], [0.0, 2.0], [2.0, 0.0])]


def test_classes_are_scored_where_they_are_known() -> None:
    found = answered(ClassificationTask.model_validate({"data": DATA}), LOGITS, ["B-A", "B-A", None])
    assert [one["prediction"] for one in found.predictions] == ["B-A", "O", "B-A"]
    assert found.scores["accuracy"] == 0.5


def test_numbers_are_scored_where_they_are_known() -> None:
    task = RegressionTask.model_validate({"data": DATA, "label_range": [0, 2]})
    found = answered(task, LOGITS, [4.0, None, 3.0])
    assert [one["prediction"] for one in found.predictions] == [4.0, 0.0, 4.0]
    assert found.scores["mean_squared_error"] == 0.5


def test_choices_are_scored_where_they_are_known() -> None:
    assert answered(MultipleChoiceTask.model_validate({"data": DATA}), LOGITS, [0, None, 1]).scores == {"accuracy": 0.5}


def test_sentences_are_scored_where_they_are_tagged() -> None:
    """The second word of the last sentence did not fit: it counts as outside of every span."""
    task = TokenClassificationTask.model_validate({"data": DATA, "scheme": "BIO"})
    words = np.array([-1, 0, 1, -1, -1, 0, 1, -1, -1, 0, -1], np.int32)
    best = [np.array(row, np.int32) for row in ([1, 0, 1, 1], [1, 0, 0, 1], [1, 1, 1])]
    labels = [["B-A", "O"], None, ["O", "O"]]
    found = answered(task, best, labels, features_of([4, 4, 3], first_words=words))
    assert [one["prediction"] for one in found.predictions] == [["B-A", "O"], ["B-A", "B-A"], ["O", "O"]]
    assert found.scores["accuracy"] == found.scores["span_f1"] == 1.0


def test_questions_are_scored_where_their_answers_are_known() -> None:
    task = QuestionAnsweringTask.model_validate({"data": DATA})
    # [CLS] in oslo, and "oslo" is the best of each.
    offsets = np.array([[-1, -1], [0, 2], [3, 7]] * 3, np.int32)
    logits = [np.array([[-9, -9], [0, 0], [5, 5]], np.float32)] * 3
    found = answered(task, logits, [["oslo"], None, ["in"]], features_of([3, 3, 3], offsets=offsets))
    assert [one["prediction"] for one in found.predictions] == ["oslo"] * 3
    assert found.scores == {"exact_match": 50.0, "f1": 50.0}


@pytest.mark.parametrize("task", [ClassificationTask, RegressionTask, MultipleChoiceTask])
def test_a_split_without_labels_has_no_scores(task: type[Any]) -> None:
    found = answered(task.model_validate({"data": DATA}), LOGITS, [None] * 3)
    assert (len(found.predictions), found.scores) == (3, {})


def test_of_words_the_best_label_alone_is_kept() -> None:
    """The highest of the logits that the network gives each row by itself; every row is told."""
    prepared = prepared_task(TokenClassificationTask.model_validate({"data": DATA}), labels=("a", "b", "c"))
    run = run_of(prepared)
    network = ElectraForFinetuning(run.encoder, run.head, torch.Generator().manual_seed(1))
    features = features_of([4, 7, 5])
    told: list[int] = []
    outputs = outputs_of(network, features, prepared, 0, torch.device("cpu"), told.append)
    assert [(one.shape, one.dtype) for one in outputs] == [((4,), np.int32), ((7,), np.int32), ((5,), np.int32)]
    assert sum(told) == 3
