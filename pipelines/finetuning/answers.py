"""From a network's outputs to the answers of a task, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax

from electra_core.finetuning.losses import mask_padding
from electra_core.finetuning.network import ElectraForFinetuning
from pipelines.finetuning.batches import RowCutter
from pipelines.specs.task import (
    ClassificationTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
)
from pipelines.tasks.features import Features
from pipelines.tasks.prepare import PreparedTask
from pipelines.tasks.scores import classification_scores, regression_scores, tag_scores
from pipelines.tasks.squad_rules import QuestionPrediction, Window, best_answers, squad_scores

TOKENS_PER_BATCH = 8192
"""Of one batch while predicting, padding included."""

Outputs = list[npt.NDArray[np.float32]]
"""Logits of each example in order: [C], [L, C] of tokens, [choices]; of questions [L, 2] of each window."""


@dataclass(frozen=True)
class Answers:
    """What a network says to a split."""

    predictions: list[dict[str, Any]]
    """For each example `id`, `prediction` and what goes with it, as JSON."""
    scores: dict[str, float]
    """Empty where the split has no labels."""


@torch.no_grad()
def outputs_of(
    network: ElectraForFinetuning, features: Features, prepared: PreparedTask, pad_id: int, device: torch.device
) -> Outputs:
    """Logits of a whole split, computed in the order of length."""
    was_training = network.training
    network.eval()
    cutter = RowCutter(features, prepared.num_choices, pad_id, device)
    lengths = cutter.lengths
    order = np.argsort(-lengths, kind="stable")
    outputs: Outputs = [np.zeros(0, np.float32)] * len(lengths)
    at = 0
    while at < len(order):
        rows = max(1, TOKENS_PER_BATCH // (int(lengths[order[at]]) * prepared.num_choices))
        some = order[at : at + rows]
        at += rows
        batch = cutter.cut(some)
        logits = network(batch.tokens)
        if prepared.task.kind == "question_answering":
            logits = mask_padding(logits, batch.tokens.attention_mask)
        if prepared.task.kind == "multiple_choice":
            logits = logits.view(-1, prepared.num_choices)
        values = logits.cpu().numpy()
        is_by_token = prepared.task.kind in ("token_classification", "question_answering")
        for row, example in enumerate(some):
            outputs[example] = values[row, : lengths[example]].copy() if is_by_token else values[row].copy()
    network.train(was_training)
    return outputs


def answer(
    prepared: PreparedTask, features: Features, outputs: Outputs, references: Sequence[dict[str, Any]]
) -> Answers:
    """Predictions of a split and, where it has labels, their scores."""
    has_labels = all(reference["label"] is not None for reference in references)
    match prepared.task:
        case ClassificationTask():
            return _classes(prepared, outputs, references, has_labels)
        case RegressionTask(label_range=(low, high)):
            numbers = np.array([logits[0] for logits in outputs], np.float32) * (high - low) + low
            predictions = [
                {"id": reference["id"], "prediction": float(number)}
                for reference, number in zip(references, numbers, strict=True)
            ]
            truth = [reference["label"] for reference in references]
            return Answers(predictions, regression_scores(numbers, np.array(truth, np.float32)) if has_labels else {})
        case TokenClassificationTask():
            return _tags(prepared, features, outputs, references, has_labels)
        case QuestionAnsweringTask():
            return _spans(prepared, features, outputs, references, has_labels)
        case MultipleChoiceTask():
            chosen = np.array([int(logits.argmax()) for logits in outputs])
            predictions = [
                {"id": reference["id"], "prediction": int(choice)}
                for reference, choice in zip(references, chosen, strict=True)
            ]
            right = [choice == reference["label"] for reference, choice in zip(references, chosen, strict=True)]
            return Answers(predictions, {"accuracy": float(np.mean(right))} if has_labels else {})


def _classes(
    prepared: PreparedTask, outputs: Outputs, references: Sequence[dict[str, Any]], has_labels: bool
) -> Answers:
    logits = np.stack(outputs)
    probabilities = softmax(logits, axis=1)
    chosen = logits.argmax(axis=1)
    predictions = [
        {"id": reference["id"], "prediction": prepared.labels[choice], "probability": float(row[choice])}
        for reference, choice, row in zip(references, chosen, probabilities, strict=True)
    ]
    if not has_labels:
        return Answers(predictions, {})
    numbers = {label: index for index, label in enumerate(prepared.labels)}
    truth = np.array([numbers[reference["label"]] for reference in references])
    return Answers(predictions, classification_scores(chosen, truth, len(prepared.labels)))


def _tags(
    prepared: PreparedTask,
    features: Features,
    outputs: Outputs,
    references: Sequence[dict[str, Any]],
    has_labels: bool,
) -> Answers:
    assert isinstance(prepared.task, TokenClassificationTask)
    assert features.first_words is not None
    # A word past the longest row was never looked at: wrong, or outside of every span.
    unseen = "O" if prepared.task.scheme != "none" else ""
    predictions = []
    for index, (reference, logits) in enumerate(zip(references, outputs, strict=True)):
        tags = [unseen] * len(reference["tokens"])
        words = features.first_words[features.starts[index] : features.starts[index + 1]]
        for word, label in zip(words, logits.argmax(axis=1), strict=True):
            if word >= 0:
                tags[word] = prepared.labels[label]
        predictions.append({"id": reference["id"], "prediction": tags})
    if not has_labels:
        return Answers(predictions, {})
    truth = [reference["label"] for reference in references]
    return Answers(predictions, tag_scores([one["prediction"] for one in predictions], truth, prepared.task.scheme))


def _spans(
    prepared: PreparedTask,
    features: Features,
    outputs: Outputs,
    references: Sequence[dict[str, Any]],
    has_labels: bool,
) -> Answers:
    task = prepared.task
    assert isinstance(task, QuestionAnsweringTask)
    assert features.offsets is not None
    windows: dict[int, list[Window]] = {}
    for row, logits in enumerate(outputs):
        offsets = features.offsets[features.starts[row] : features.starts[row + 1]]
        windows.setdefault(int(features.examples[row]), []).append(Window(logits[:, 0], logits[:, 1], offsets))
    may_have_none = prepared.may_have_no_answer or (
        has_labels and any(not reference["label"] for reference in references)
    )
    answered: dict[str, QuestionPrediction] = {}
    predictions = []
    for index, reference in enumerate(references):
        found = best_answers(reference["context"], windows[index], task.num_best, task.max_answer_tokens)
        answered[reference["id"]] = found
        scores = softmax(np.array([candidate.score for candidate in found.candidates]))
        predictions.append(
            {
                "id": reference["id"],
                "prediction": found.candidates[0].text,
                "null_odds": found.null_odds,
                "n_best": [
                    {"text": candidate.text, "score": candidate.score, "probability": float(probability)}
                    for candidate, probability in zip(found.candidates, scores, strict=True)
                ],
            }
        )
        if may_have_none and found.null_odds > 0:
            predictions[-1]["prediction"] = ""
    if not has_labels:
        return Answers(predictions, {})
    truth = {reference["id"]: reference["label"] for reference in references}
    return Answers(predictions, squad_scores(answered, truth, may_have_none=may_have_none))
