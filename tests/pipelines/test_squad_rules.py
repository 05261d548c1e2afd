"""The rules of SQuAD's scripts, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.tasks.squad_rules import (
    Candidate,
    QuestionPrediction,
    Window,
    best_answers,
    best_threshold,
    normalise_answer,
    question_scores,
    squad_scores,
    token_f1,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel Tower!", "eiffel tower"),
        ("an apple, a day", "apple day"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("co-operate", "cooperate"),
        ("The", ""),
    ],
)
def test_answers_are_normalised(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


def test_f1_counts_words_as_often_as_both_have_them() -> None:
    """Two of three words against two of four: precision 2/3, recall 1/2."""
    assert token_f1("red green blue blue", "red blue yellow") == pytest.approx(2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2))
    assert token_f1("red", "green") == 0.0
    assert token_f1("", "") == 1.0
    assert token_f1("", "red") == 0.0


def test_the_answer_that_fits_best_counts() -> None:
    assert question_scores(["in Paris", "Paris"], "Paris") == (1.0, 1.0)
    assert question_scores([], "") == (1.0, 1.0)
    assert question_scores([], "Paris") == (0.0, 0.0)


def prediction(text: str, score: float, null_score: float) -> QuestionPrediction:
    return QuestionPrediction((Candidate(text, score),), null_score)


def test_scores_of_the_first_version_are_percent() -> None:
    predictions = {"a": prediction("Paris", 1.0, 9.0), "b": prediction("the red car", 1.0, 9.0)}
    scores = squad_scores(predictions, {"a": ["Paris"], "b": ["red bus", "blue bus"]})
    assert scores == {"exact_match": 50.0, "f1": pytest.approx(75.0)}


def test_unanswerable_questions_are_told_by_their_odds() -> None:
    """a: answered rightly; b: rightly left; c: left though it has an answer; d: answered though it has none."""
    predictions = {
        "a": prediction("Paris", 3.0, 1.0),
        "b": prediction("Rome", 1.0, 5.0),
        "c": prediction("Oslo", 1.0, 1.5),
        "d": prediction("Bern", 2.0, 1.0),
    }
    scores = squad_scores(predictions, {"a": ["Paris"], "b": [], "c": ["Oslo"], "d": []})
    assert scores["exact_match"] == scores["f1"] == 50.0
    assert scores["has_answer_exact_match"] == scores["no_answer_f1"] == 50.0
    # In order of their odds: a (−2) right, d (−1) wrong, c (0.5) right, b (4) wrong; from 2 of 4 with no answer at all.
    assert scores["best_exact_match"] == 75.0
    assert scores["best_exact_match_threshold"] == -2.0


def test_the_threshold_stays_at_0_where_no_answer_is_best() -> None:
    best = best_threshold({"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 2.0}, {"a": True, "b": False}, {"a", "b"})
    assert best == (50.0, 0.0)


def test_an_empty_span_for_an_unanswerable_question_costs_nothing() -> None:
    best = best_threshold({"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 1.0}, {"a": True, "b": False}, {"a"})
    assert best == (100.0, 2.0)


CONTEXT = "Oslo is the capital of Norway"
OFFSETS = np.array([[-1, -1], [-1, -1], [0, 4], [5, 7], [8, 11], [12, 19], [-1, -1]], np.int32)


def window(starts: dict[int, float], ends: dict[int, float], offsets: np.ndarray = OFFSETS) -> Window:
    start_logits, end_logits = np.full(len(offsets), -5.0, np.float32), np.full(len(offsets), -5.0, np.float32)
    for logits, values in ((start_logits, starts), (end_logits, ends)):
        for place, value in values.items():
            logits[place] = value
    return Window(start_logits, end_logits, offsets)


def test_spans_lie_in_the_context_and_run_forwards() -> None:
    """The question's tokens and spans that end before they start are no answers, however high their logits."""
    found = best_answers(
        CONTEXT, [window({1: 9.0, 4: 3.0}, {1: 9.0, 2: 8.0, 5: 2.0})], num_best=3, max_answer_tokens=30
    )
    assert found.candidates[0] == Candidate("the capital", 5.0)
    assert found.null_score == -10.0


def test_long_spans_are_no_answers() -> None:
    found = best_answers(CONTEXT, [window({2: 4.0}, {5: 4.0, 3: 1.0})], num_best=5, max_answer_tokens=2)
    assert found.candidates[0] == Candidate("Oslo is", 5.0)


def test_the_best_of_all_windows_counts_once() -> None:
    """The same text in two windows is one candidate with its higher score; "no answer" is the lowest of the windows."""
    first, second = window({0: 1.0, 2: 1.0}, {0: 2.0, 2: 1.0}), window({0: 0.0, 2: 3.0}, {0: 0.5, 2: 1.0})
    found = best_answers(CONTEXT, [first, second], num_best=20, max_answer_tokens=30)
    assert [one.text for one in found.candidates].count("Oslo") == 1
    assert found.candidates[0] == Candidate("Oslo", 4.0)
    assert found.null_score == 0.5
    assert found.null_odds == pytest.approx(-3.5)


def test_a_context_without_a_possible_span_has_an_empty_answer() -> None:
    offsets = np.full((3, 2), -1, np.int32)
    found = best_answers("x", [window({}, {}, offsets)], num_best=5, max_answer_tokens=5)
    assert found.candidates[0].text == ""
