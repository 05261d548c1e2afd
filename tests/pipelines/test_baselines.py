"""The bounds of TF-IDF: what it takes and what it says of that."""

from __future__ import annotations

import pytest

from pipelines.specs.task import ClassificationTask
from pipelines.tasks.baselines import Baseline, tfidf_baseline
from pipelines.tasks.examples import Split, TaskData, TextExample

TASK = ClassificationTask.model_validate({"data": {"train": "train.jsonl"}})
MODULE = "pipelines.tasks.baselines"


def learned(texts: dict[str, str], num_examples: int = 100, labels: tuple[str, ...] = ("a", "b")) -> Baseline:
    """Trained on `num_examples` of each label, which all have one text, and held to the same."""
    examples = tuple(
        TextExample(f"{label} {index}", f"{index} {text}" if text.strip() else text, None, label)
        for label, text in texts.items()
        for index in range(num_examples)
    )
    split = Split(examples, len(examples))
    return tfidf_baseline(TASK, TaskData(split, {"": split}, {}, labels))


GOOD = {"a": "quite good", "b": "quite bad"}


def test_words_that_tell_the_label_are_found() -> None:
    assert learned(GOOD) == Baseline({"accuracy": 1.0, "macro_f1": 1.0, "matthews": 1.0, "f1": 1.0})


def test_pairs_of_words_that_tell_the_label_are_found() -> None:
    assert learned({"a": "good not bad", "b": "bad not good"}).scores["accuracy"] == 1.0


def test_many_labels_leave_fewer_examples() -> None:
    """The loss holds a number for each example and label: 20 000 000 of them at most."""
    labels = ("a", "b", *(f"other {index}" for index in range(199_998)))
    found = learned(GOOD, labels=labels)
    assert found.note == "the baseline tfidf learned from 100 of 200 training examples"
    assert found.scores["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("name", "bound", "expected"),
    [("MAX_TFIDF_EXAMPLES", 12, 12), ("MAX_TFIDF_CHARACTERS", 50, 8), ("MAX_TFIDF_LOGITS", 21, 10)],
)
def test_no_more_is_read_than_the_bounds_allow(
    monkeypatch: pytest.MonkeyPatch, name: str, bound: int, expected: int
) -> None:
    """Twenty texts of six characters and two labels; the same examples every time."""
    monkeypatch.setattr(f"{MODULE}.{name}", bound)
    found = learned({"a": "good", "b": "evil"}, num_examples=10)
    assert found.note == f"the baseline tfidf learned from {expected} of 20 training examples"
    assert learned({"a": "good", "b": "evil"}, num_examples=10) == found


def test_no_more_features_are_kept_than_the_bounds_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commonest is in all texts, and tells nothing."""
    assert learned({"a": "word word good", "b": "word word bad"}).scores["accuracy"] == 1.0
    monkeypatch.setattr(f"{MODULE}.MAX_TFIDF_FEATURES", 1)
    assert learned({"a": "word word good", "b": "word word bad"}).scores["accuracy"] == 0.5


def test_of_a_long_text_the_beginning_is_read() -> None:
    """The words stand behind 10 000 characters that are none."""
    found = learned({"a": "!" * 10_000 + " good", "b": "!" * 10_000 + " bad"}, num_examples=2)
    assert found.scores["accuracy"] == 0.5


@pytest.mark.parametrize("text", ["🙂", "?!", " "])
def test_without_words_it_is_left_out(text: str) -> None:
    examples = tuple(TextExample(str(index), text, None, "ab"[index % 2]) for index in range(4))
    split = Split(examples, 4)
    found = tfidf_baseline(TASK, TaskData(split, {"": split}, {}, ("a", "b")))
    assert found == Baseline(
        {}, "the baseline tfidf is left out: 4 of 4 training examples hold no word that it could learn from"
    )


def test_of_one_label_nothing_is_learned() -> None:
    assert "have one label" in learned({"a": "quite good"}).note
