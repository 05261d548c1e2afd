"""Scores of fixed predictions are those of the reference scripts; `reference_scores/README.md` says which these are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.tasks.examples import QuestionExample
from pipelines.tasks.scores import classification_scores, regression_scores, tag_scores
from pipelines.tasks.squad_file import read_squad
from pipelines.tasks.squad_rules import Candidate, QuestionPrediction, squad_scores

FOLDER = Path(__file__).parent / "reference_scores"


def read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


CLASSES, NUMBERS, TAGS = read("classes"), read("numbers"), read("tags")


def answers_of(data: str) -> dict[str, list[str]]:
    questions = read_squad(str(FOLDER / f"{data}.json"), is_for_training=False)
    return {
        one.identifier: [answer.text for answer in one.answers or ()]
        for one in questions
        if isinstance(one, QuestionExample)
    }


def predictions_of(texts: str, null_odds: str) -> dict[str, QuestionPrediction]:
    odds = read(null_odds)
    return {key: QuestionPrediction((Candidate(text, 0.0),), odds[key]) for key, text in read(texts).items()}


def test_squads_first_script() -> None:
    scores = squad_scores(predictions_of("squad1-predictions", "squad1-null-odds"), answers_of("squad1-data"))
    assert scores == pytest.approx(read("squad1-expected"), abs=1e-6)


# Our name of each figure that the second script prints.
SECOND = {
    "exact": "exact_match",
    "f1": "f1",
    "HasAns_exact": "has_answer_exact_match",
    "HasAns_f1": "has_answer_f1",
    "NoAns_exact": "no_answer_exact_match",
    "NoAns_f1": "no_answer_f1",
    "best_exact": "best_exact_match",
    "best_exact_thresh": "best_exact_match_threshold",
    "best_f1": "best_f1",
    "best_f1_thresh": "best_f1_threshold",
}


@pytest.mark.parametrize(
    ("data", "texts", "null_odds"),
    [
        ("squad1", "squad1", "squad1-null-odds"),
        ("squad2", "squad2", "squad2-null-odds"),
        ("squad2", "squad2", "squad2-null-odds-tied"),
        ("squad2", "squad2-poor", "squad2-null-odds-upside-down"),
    ],
)
def test_squads_second_script(data: str, texts: str, null_odds: str) -> None:
    predictions = predictions_of(f"{texts}-predictions", null_odds)
    scores = squad_scores(predictions, answers_of(f"{data}-data"), may_have_none=True)
    printed = {SECOND[name]: figure for name, figure in read(f"{null_odds}-expected").items() if "total" not in name}
    assert scores == pytest.approx(printed, abs=1e-6)


@pytest.mark.parametrize("case", CLASSES)
def test_classes(case: str) -> None:
    found = CLASSES[case]
    scores = classification_scores(np.array(found["predicted"]), np.array(found["labels"]), found["num_labels"])
    printed = {name: found[name] for name in ("accuracy", "f1", "macro_f1", "matthews") if name in found}
    assert scores == pytest.approx(printed, abs=1e-6)


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers(case: str) -> None:
    """A correlation of what does not vary is not a number, which JSON writes as null."""
    found = NUMBERS[case]
    scores = regression_scores(np.array(found["predicted"], np.float32), np.array(found["labels"], np.float32))
    for name in ("pearson", "spearman", "mean_squared_error"):
        printed = float("nan") if found[name] is None else found[name]
        assert scores[name] == pytest.approx(printed, rel=1e-6, abs=1e-6, nan_ok=True)


def spans(printed: dict[str, float]) -> dict[str, float]:
    """From the counts, which are exact; the percentages have two digits."""
    found, phrases, correct = printed["found"], printed["phrases"], printed["correct"]
    return {
        "span_precision": correct / max(found, 1),
        "span_recall": correct / max(phrases, 1),
        "span_f1": 2 * correct / max(found + phrases, 1),
    }


@pytest.mark.parametrize("case", TAGS)
def test_tags(case: str) -> None:
    """Tags that are no span of their scheme count as conlleval counts them: `I-` after `O` begins one."""
    found = TAGS[case]
    predicted, labels = ([line.split() for line in found[key]] for key in ("predicted", "labels"))
    scores = tag_scores(predicted, labels, found["scheme"])
    assert 100 * scores.pop("accuracy") == pytest.approx(found["conlleval"]["accuracy"], abs=0.005)
    assert scores == pytest.approx(spans(found["conlleval"]), abs=1e-6)
