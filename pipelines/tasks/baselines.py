"""What needs no encoder: scores that a finetuned one must beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pipelines.specs.task import ClassificationTask, RegressionTask, TokenClassificationTask, UserTask
from pipelines.tasks.examples import Split, TaggedExample, TaskData, TextExample, content_hash
from pipelines.tasks.scores import classification_scores, regression_scores, tag_scores

MAX_TFIDF_EXAMPLES, MAX_TFIDF_FEATURES, MAX_TFIDF_WEIGHTS = 200_000, 200_000, 5_000_000
"""Bounds of a baseline that should cost seconds: 5 M weights take about a gigabyte while they are fitted."""
_WORD = r"(?u)\b\w+\b"
"""Words of one letter too, which scikit-learn leaves out."""


def majority_scores(task: UserTask, data: TaskData) -> dict[str, float]:
    """Of the commonest label for everything; of a word its own commonest tag, or else the commonest of all; of the
    mean for numbers. Empty where the task has no such answer.
    """
    held_out = next(iter(data.validation.values()))
    match task:
        case ClassificationTask():
            truth, commonest = (
                _label_ids(held_out, data.labels),
                Counter(_label_ids(data.train, data.labels)).most_common(1),
            )
            predicted = [commonest[0][0]] * len(truth)
            return classification_scores(np.array(predicted), np.array(truth), len(data.labels)) if truth else {}
        case RegressionTask():
            truth_numbers = np.array([_number(example) for example in held_out.examples], np.float32)
            mean = np.mean([_number(example) for example in data.train.examples])
            scores = regression_scores(np.full_like(truth_numbers, mean), truth_numbers)
            return {"mean_squared_error": scores["mean_squared_error"]}  # a constant correlates with nothing
        case TokenClassificationTask():
            return _commonest_tags(task, data.train, held_out)
        case _:
            return {}


def tfidf_scores(task: UserTask, data: TaskData) -> dict[str, float]:
    """Of logistic regression on TF-IDF of words and pairs of words; empty where the task is no classification."""
    if not isinstance(task, ClassificationTask):
        return {}
    # They take seconds to import, and most tasks need neither.
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    held_out = next(iter(data.validation.values()))
    train = tuple(sorted(data.train.examples, key=content_hash)[:MAX_TFIDF_EXAMPLES])
    labels = _label_ids(data.train.with_examples(train), data.labels)
    if len(set(labels)) < 2:
        return {}
    model = make_pipeline(
        TfidfVectorizer(
            ngram_range=(1, 2),
            sublinear_tf=True,
            token_pattern=_WORD,
            max_features=min(MAX_TFIDF_FEATURES, MAX_TFIDF_WEIGHTS // len(data.labels)),
        ),
        LogisticRegression(C=10.0, max_iter=1000),
    )
    model.fit([_joined(example) for example in train], labels)
    truth = _label_ids(held_out, data.labels)
    predicted = model.predict([_joined(example) for example in held_out.examples])
    return classification_scores(np.array(predicted), np.array(truth), len(data.labels))


def _commonest_tags(task: TokenClassificationTask, train: Split, held_out: Split) -> dict[str, float]:
    by_word: dict[str, Counter[str]] = {}
    all_tags: Counter[str] = Counter()
    for example in train.examples:
        assert isinstance(example, TaggedExample)
        for word, tag in zip(example.tokens, example.tags or (), strict=False):
            by_word.setdefault(word, Counter())[tag] += 1
            all_tags[tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in by_word.items()}
    commonest = all_tags.most_common(1)[0][0]
    truth: list[Sequence[str]] = []
    predicted: list[Sequence[str]] = []
    for example in held_out.examples:
        assert isinstance(example, TaggedExample)
        truth.append(example.tags or ())
        predicted.append([best.get(word, commonest) for word in example.tokens])
    return tag_scores(predicted, truth, task.scheme)


def _label_ids(split: Split, labels: Sequence[str]) -> list[int]:
    numbers = {label: index for index, label in enumerate(labels)}
    return [numbers[str(example.label)] for example in split.examples if isinstance(example, TextExample)]


def _number(example: object) -> float:
    assert isinstance(example, TextExample)
    assert isinstance(example.label, float)
    return example.label


def _joined(example: object) -> str:
    """A pair's second text has words of its own: which side a word stands on matters."""
    assert isinstance(example, TextExample)
    if example.text_pair is None:
        return example.text
    return example.text + " " + " ".join(f"second_{word}" for word in example.text_pair.split())
