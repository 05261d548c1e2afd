"""What needs no encoder: scores that a finetuned one must beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pipelines.specs.task import ClassificationTask, RegressionTask, TokenClassificationTask, UserTask
from pipelines.tasks.examples import Example, Split, TaggedExample, TaskData, TextExample, content_hash
from pipelines.tasks.scores import classification_scores, regression_scores, tag_scores

# Bounds of a baseline that should cost seconds and a gigabyte.
MAX_TFIDF_EXAMPLES = 200_000
MAX_TFIDF_CHARACTERS = 50_000_000
"""Of all texts that it learns from."""
MAX_TFIDF_TEXT_CHARACTERS = 10_000
"""What is read of each text."""
MAX_TFIDF_FEATURES, MAX_TFIDF_WEIGHTS = 200_000, 5_000_000
MAX_TFIDF_LOGITS = 20_000_000
"""Examples times labels: the loss holds a few such arrays of float64."""
_HASHED_FEATURES = 2**21
"""Counted before the commonest are chosen. Words share a number, and no vocabulary is held."""
_PREDICTED_AT_A_TIME = 1000
_WORD = r"(?u)\b\w+\b"
"""Words of one letter too, which scikit-learn leaves out."""


class Baseline(NamedTuple):
    """What a baseline scores."""

    scores: dict[str, float]
    """Empty where the task has no such baseline, or where it was left out."""
    note: str = ""
    """What of it was left out and why, for people; empty where nothing was."""


def majority_scores(task: UserTask, data: TaskData) -> dict[str, float]:
    """Of the commonest label for everything; of a word its own commonest tag, or else the commonest of all; of the
    mean for numbers. Empty where the task has no such answer.
    """
    held_out = next(iter(data.validation.values()))
    match task:
        case ClassificationTask():
            truth, commonest = (
                _label_ids(held_out.examples, data.labels),
                Counter(_label_ids(data.train.examples, data.labels)).most_common(1),
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


def tfidf_baseline(task: UserTask, data: TaskData) -> Baseline:
    """Logistic regression on TF-IDF of words and pairs of words; nothing where the task is no classification."""
    if not isinstance(task, ClassificationTask):
        return Baseline({})
    # They take seconds to import, and most tasks need neither.
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    train = _learned_from(data.train.examples, len(data.labels))
    labels = _label_ids(train, data.labels)
    share = f"{len(train):,} of {len(data.train.examples):,} training examples"
    if len(set(labels)) < 2:
        return Baseline({}, f"the baseline tfidf is left out: {share} are what it may learn from, and have one label")
    vectorizer = HashingVectorizer(
        ngram_range=(1, 2), token_pattern=_WORD, n_features=_HASHED_FEATURES, alternate_sign=False, norm=None
    )
    counts = vectorizer.transform(map(_joined, train))
    if not counts.nnz:
        return Baseline({}, f"the baseline tfidf is left out: {share} hold no word that it could learn from")
    columns = _commonest(counts, max(1, min(MAX_TFIDF_FEATURES, MAX_TFIDF_WEIGHTS // len(data.labels))))
    model = make_pipeline(TfidfTransformer(sublinear_tf=True), LogisticRegression(C=10.0, max_iter=1000))
    model.fit(counts[:, columns], labels)
    held_out = next(iter(data.validation.values())).examples
    predicted = [
        model.predict(vectorizer.transform(map(_joined, held_out[at : at + _PREDICTED_AT_A_TIME]))[:, columns])
        for at in range(0, len(held_out), _PREDICTED_AT_A_TIME)
    ]
    truth = np.array(_label_ids(held_out, data.labels))
    scores = classification_scores(np.concatenate(predicted), truth, len(data.labels))
    is_whole = len(train) == len(data.train.examples)
    return Baseline(scores, "" if is_whole else f"the baseline tfidf learned from {share}")


def _learned_from(examples: Sequence[Example], num_labels: int) -> list[Example]:
    """As many training examples as the bounds allow, the same ones every time."""
    taken: list[Example] = []
    num_characters = 0
    for example in sorted(examples, key=content_hash)[: min(MAX_TFIDF_EXAMPLES, MAX_TFIDF_LOGITS // num_labels)]:
        num_characters += len(_joined(example))
        if num_characters > MAX_TFIDF_CHARACTERS:
            break
        taken.append(example)
    return taken


def _commonest(counts: Any, most: int) -> Any:
    """Columns of the features that occur most often, those that never do left out."""
    totals = np.asarray(counts.sum(axis=0)).ravel()
    columns = np.argsort(-totals, kind="stable")[:most]
    return np.sort(columns[totals[columns] > 0])


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


def _label_ids(examples: Sequence[Example], labels: Sequence[str]) -> list[int]:
    numbers = {label: index for index, label in enumerate(labels)}
    return [numbers[str(example.label)] for example in examples if isinstance(example, TextExample)]


def _number(example: object) -> float:
    assert isinstance(example, TextExample)
    assert isinstance(example.label, float)
    return example.label


def _joined(example: object) -> str:
    """A pair's second text has words of its own: which side a word stands on matters."""
    assert isinstance(example, TextExample)
    text = example.text[:MAX_TFIDF_TEXT_CHARACTERS]
    if example.text_pair is None:
        return text
    pair = example.text_pair[:MAX_TFIDF_TEXT_CHARACTERS]
    return text + " " + " ".join(f"second_{word}" for word in pair.split())
