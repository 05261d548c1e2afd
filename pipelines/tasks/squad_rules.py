"""Answers to questions: from logits to the best ones, and the rules of SQuAD's scripts by which they are scored.

Sources: the evaluation scripts of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018), written out here.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


class Candidate(NamedTuple):
    """A possible answer."""

    text: str
    score: float
    """Logit of its start plus logit of its end."""


class QuestionPrediction(NamedTuple):
    """What the network says to one question."""

    candidates: tuple[Candidate, ...]
    """Best first; at least one, which is empty where no span is possible."""
    null_score: float
    """That of [CLS], which stands for "no answer": the smallest over the windows."""

    @property
    def null_odds(self) -> float:
        """How much better "no answer" scores than the best span."""
        return self.null_score - self.candidates[0].score


class Window(NamedTuple):
    """The logits of one window of a context, L tokens."""

    start_logits: npt.NDArray[np.float32]
    """[L]."""
    end_logits: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int32]
    """[L, 2] in characters; −1 at what is not of the context."""


def best_answers(context: str, windows: Sequence[Window], num_best: int, max_answer_tokens: int) -> QuestionPrediction:
    """The spans with the highest sum of start and end logit, over all windows of a context."""
    found: dict[str, float] = {}
    null_score = float("inf")
    for window in windows:
        null_score = min(null_score, float(window.start_logits[0] + window.end_logits[0]))
        is_context = window.offsets[:, 0] >= 0
        starts = _highest(np.where(is_context, window.start_logits, -np.inf), num_best)
        ends = _highest(np.where(is_context, window.end_logits, -np.inf), num_best)
        lengths = ends[None, :] - starts[:, None] + 1
        scores = window.start_logits[starts][:, None] + window.end_logits[ends][None, :]
        is_possible = (lengths >= 1) & (lengths <= max_answer_tokens)
        for row, column in zip(*np.nonzero(is_possible), strict=True):
            text = context[window.offsets[starts[row], 0] : window.offsets[ends[column], 1]]
            score = float(scores[row, column])
            if score > found.get(text, float("-inf")):
                found[text] = score
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:num_best]
    return QuestionPrediction(tuple(Candidate(*item) for item in ranked) or (Candidate("", -1e9),), null_score)


def _highest(scores: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
    """Indices of the `count` highest finite scores."""
    order = np.argsort(-scores, kind="stable")[:count]
    return order[np.isfinite(scores[order])]


def normalise_answer(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous blanks."""
    lowered = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", lowered).split())


def exact_match(answer: str, predicted: str) -> float:
    """1 where the two are the same after `normalise_answer`, else 0."""
    return float(normalise_answer(answer) == normalise_answer(predicted))


def token_f1(answer: str, predicted: str) -> float:
    """F1 of the words of two texts after `normalise_answer`; two texts without words are equal."""
    truth, guess = normalise_answer(answer).split(), normalise_answer(predicted).split()
    if not truth or not guess:
        return float(truth == guess)
    common = sum((Counter(truth) & Counter(guess)).values())
    if not common:
        return 0.0
    precision, recall = common / len(guess), common / len(truth)
    return 2 * precision * recall / (precision + recall)


def first_version_scores(answers: Sequence[str], predicted: str) -> tuple[float, float]:
    """Exact match and F1 against the answer that fits best, as the 1.1 script has them: every answer counts there, and
    a prediction without words has nothing in common with any.
    """
    has_words = bool(normalise_answer(predicted))
    return (
        max(exact_match(answer, predicted) for answer in answers),
        max(token_f1(answer, predicted) for answer in answers) if has_words else 0.0,
    )


def question_scores(answers: Sequence[str], predicted: str) -> tuple[float, float]:
    """Exact match and F1 against the answer that fits best, as the 2.0 script has them; no answer is right where there
    is none.
    """
    # Answers that normalise to nothing, "the" say, cannot be given; the 2.0 script takes them out.
    possible = [answer for answer in answers if normalise_answer(answer)] or [""]
    return (
        max(exact_match(answer, predicted) for answer in possible),
        max(token_f1(answer, predicted) for answer in possible),
    )


def squad_scores(
    predictions: Mapping[str, QuestionPrediction], answers: Mapping[str, Sequence[str]], may_have_none: bool = False
) -> dict[str, float]:
    """The scores of the official scripts, in percent.

    Args:
        predictions: by question.
        answers: right answers by question; none where the text has none.
        may_have_none: "no answer" is an answer even if every one of these questions has one.

    Returns:
        exact_match, f1: of SQuAD 1.1; where some questions have no answer, with "no answer" given wherever it scores
            higher than every span, as are has_answer_f1, no_answer_f1 and their exact_match.
        best_exact_match, best_f1, best_exact_match_threshold, best_f1_threshold: where some questions have no answer:
            what the best threshold on `null_odds` would have given.
    """
    may_have_none = may_have_none or any(not texts for texts in answers.values())
    rule = question_scores if may_have_none else first_version_scores
    spans = {key: rule(texts, predictions[key].candidates[0].text) for key, texts in answers.items()}
    if not may_have_none:
        return {
            "exact_match": _percent(exact for exact, _ in spans.values()),
            "f1": _percent(f1 for _, f1 in spans.values()),
        }
    # "No answer" is wrong where there is one, even one that normalises to nothing and that an empty span would match.
    given = {
        key: (float(not texts), float(not texts)) if predictions[key].null_odds > 0 else spans[key]
        for key, texts in answers.items()
    }
    scores = {}
    for name, keys in (
        ("", list(answers)),
        ("has_answer_", [key for key, texts in answers.items() if texts]),
        ("no_answer_", [key for key, texts in answers.items() if not texts]),
    ):
        if keys:
            scores[f"{name}exact_match"] = _percent(given[key][0] for key in keys)
            scores[f"{name}f1"] = _percent(given[key][1] for key in keys)
    for place, name in enumerate(("exact_match", "f1")):
        best, threshold = best_threshold(
            {key: score[place] for key, score in spans.items()},
            {key: predictions[key].null_odds for key in answers},
            {key: bool(texts) for key, texts in answers.items()},
            {key for key in answers if predictions[key].candidates[0].text},
        )
        scores[f"best_{name}"], scores[f"best_{name}_threshold"] = best, threshold
    return scores


def best_threshold(
    span_scores: Mapping[str, float], null_odds: Mapping[str, float], has_answer: Mapping[str, bool], answered: set[str]
) -> tuple[float, float]:
    """The best score in percent, and the odds above which "no answer" must be said for it.

    As in the script of SQuAD 2.0: begin with "no answer" to everything, and give answers in order of their odds.

    Args:
        span_scores: what each question's best span scores, 0 to 1.
        null_odds: of each question.
        has_answer: whether its text has one.
        answered: questions whose best span is not empty.
    """
    current = best = float(sum(not has for has in has_answer.values()))
    threshold = 0.0
    for key in sorted(null_odds, key=lambda key: null_odds[key]):
        current += span_scores[key] if has_answer[key] else -float(key in answered)
        if current > best:
            best, threshold = current, null_odds[key]
    return 100.0 * best / len(null_odds), threshold


def _percent(values: Iterable[float]) -> float:
    return 100.0 * float(np.mean(list(values)))
