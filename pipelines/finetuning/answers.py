"""From a network's outputs to the answers of a task, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

Outputs = list[npt.NDArray[Any]]
"""Of each example in order: logits [C] or [choices]; of words the best label int32[L] of each token, for L × C logits
of a whole split are many; of questions logits [L, 2] of each window."""


@dataclass(frozen=True)
class Answers:
    """What a network says to a split."""

    predictions: list[dict[str, Any]]
    """For each example `id`, `prediction` and what goes with it, as JSON."""
    scores: dict[str, float]
    """On the examples that have a label; empty where none has."""


@dataclass(frozen=True)
class _Truth:
    """What is known of a split's answers."""

    places: npt.NDArray[np.int64]
    """Of the examples that have a label, in order."""
    labels: list[Any]
    """Theirs."""


@torch.no_grad()
def outputs_of(
    network: ElectraForFinetuning,
    features: Features,
    prepared: PreparedTask,
    pad_id: int,
    device: torch.device,
    tell: Callable[[int], None],
) -> Outputs:
    """What the network says to a whole split, computed in the order of length.

    Args:
        network: stays in the mode it is in.
        features: of the split.
        prepared: the task.
        pad_id: id of [PAD].
        device: where the network is.
        tell: called with the number of rows of each batch when they are read.
    """
    was_training = network.training
    network.eval()
    cutter = RowCutter(features, prepared.num_choices, pad_id, device)
    lengths = cutter.lengths
    order = np.argsort(-lengths, kind="stable")
    outputs: Outputs = [np.zeros(0, np.float32)] * len(lengths)
    is_by_token = prepared.task.kind in ("token_classification", "question_answering")
    at = 0
    while at < len(order):
        rows = max(1, TOKENS_PER_BATCH // (cutter.padded(int(lengths[order[at]])) * prepared.num_choices))
        some = order[at : at + rows]
        at += rows
        batch = cutter.cut(some)
        values = _values(prepared, network(batch.tokens), batch.tokens.attention_mask)
        for row, example in enumerate(some):
            outputs[example] = values[row, : lengths[example]].copy() if is_by_token else values[row].copy()
        tell(len(some) * prepared.num_choices)
    network.train(was_training)
    return outputs


def _values(prepared: PreparedTask, logits: torch.Tensor, attention_mask: torch.Tensor) -> npt.NDArray[Any]:
    """What is kept of a batch's logits."""
    match prepared.task.kind:
        case "token_classification":
            logits = logits.argmax(dim=-1).int()
        case "question_answering":
            logits = mask_padding(logits, attention_mask)
        case "multiple_choice":
            logits = logits.view(-1, prepared.num_choices)
    values: npt.NDArray[Any] = logits.cpu().numpy()
    return values


def answer(
    prepared: PreparedTask, features: Features, outputs: Outputs, references: Sequence[dict[str, Any]]
) -> Answers:
    """Predictions of a split and, of its examples that have a label, the scores."""
    places = [place for place, reference in enumerate(references) if reference["label"] is not None]
    truth = _Truth(np.array(places, np.int64), [references[place]["label"] for place in places])
    match prepared.task:
        case ClassificationTask():
            return _classes(prepared, outputs, references, truth)
        case RegressionTask(label_range=(low, high)):
            numbers = np.array([logits[0] for logits in outputs], np.float32) * (high - low) + low
            predictions = _predictions(references, map(float, numbers))
            known = np.array(truth.labels, np.float32)
            return Answers(predictions, regression_scores(numbers[truth.places], known) if places else {})
        case TokenClassificationTask():
            return _tags(prepared, features, outputs, references, truth)
        case QuestionAnsweringTask():
            return _spans(prepared, features, outputs, references, truth)
        case MultipleChoiceTask():
            chosen = np.array([int(logits.argmax()) for logits in outputs])
            is_right = chosen[truth.places] == np.array(truth.labels, np.int64)
            scores = {"accuracy": float(np.mean(is_right))} if places else {}
            return Answers(_predictions(references, map(int, chosen)), scores)


def _predictions(references: Sequence[dict[str, Any]], answers: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"id": reference["id"], "prediction": one} for reference, one in zip(references, answers, strict=True)]


def _classes(prepared: PreparedTask, outputs: Outputs, references: Sequence[dict[str, Any]], truth: _Truth) -> Answers:
    logits = np.stack(outputs)
    probabilities = softmax(logits, axis=1)
    chosen = logits.argmax(axis=1)
    predictions = [
        {"id": reference["id"], "prediction": prepared.labels[choice], "probability": float(row[choice])}
        for reference, choice, row in zip(references, chosen, probabilities, strict=True)
    ]
    if not truth.labels:
        return Answers(predictions, {})
    numbers = {label: index for index, label in enumerate(prepared.labels)}
    known = np.array([numbers[label] for label in truth.labels])
    return Answers(predictions, classification_scores(chosen[truth.places], known, len(prepared.labels)))


def _tags(
    prepared: PreparedTask,
    features: Features,
    outputs: Outputs,
    references: Sequence[dict[str, Any]],
    truth: _Truth,
) -> Answers:
    assert isinstance(prepared.task, TokenClassificationTask)
    assert features.first_words is not None
    # A word past the longest row was never looked at: wrong, or outside of every span.
    unseen = "O" if prepared.task.scheme != "none" else ""
    answers = []
    for index, (reference, best) in enumerate(zip(references, outputs, strict=True)):
        tags = [unseen] * len(reference["tokens"])
        words = features.first_words[features.starts[index] : features.starts[index + 1]]
        for word, label in zip(words, best, strict=True):
            if word >= 0:
                tags[word] = prepared.labels[label]
        answers.append(tags)
    predictions = _predictions(references, answers)
    if not truth.labels:
        return Answers(predictions, {})
    scored = [answers[place] for place in truth.places]
    return Answers(predictions, tag_scores(scored, truth.labels, prepared.task.scheme))


def _spans(
    prepared: PreparedTask,
    features: Features,
    outputs: Outputs,
    references: Sequence[dict[str, Any]],
    truth: _Truth,
) -> Answers:
    task = prepared.task
    assert isinstance(task, QuestionAnsweringTask)
    assert features.offsets is not None
    windows: dict[int, list[Window]] = {}
    for row, logits in enumerate(outputs):
        offsets = features.offsets[features.starts[row] : features.starts[row + 1]]
        windows.setdefault(int(features.examples[row]), []).append(Window(logits[:, 0], logits[:, 1], offsets))
    may_have_none = prepared.may_have_no_answer or not all(truth.labels)
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
    if not truth.labels:
        return Answers(predictions, {})
    right = {references[place]["id"]: texts for place, texts in zip(truth.places, truth.labels, strict=True)}
    return Answers(predictions, squad_scores(answered, right, may_have_none=may_have_none))
