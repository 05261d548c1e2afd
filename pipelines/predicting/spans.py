"""The answer to a question, wherever in a long context it stands: windows and rules of finetuning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from pipelines.predicting.model import LoadedModel
from pipelines.predicting.rows import QUESTION, logits_of_rows, max_query_tokens, num_tokens, question_rows
from pipelines.specs.prediction import QuestionAnsweringPrediction
from pipelines.tasks.squad_rules import Window, best_answers


def answer_question(model: LoadedModel, question: str, context: str) -> QuestionAnsweringPrediction:
    """The best span of the context; an empty one where none of the model's best starts and ends go together.

    Raises:
        PredictError: a logit is not finite.
    """
    features = question_rows(model, question, context)
    assert features.offsets is not None
    windows = []
    for row, logits in enumerate(logits_of_rows(model, features)):
        offsets = features.offsets[features.starts[row] : features.starts[row + 1]]
        windows.append(Window(logits[:, 0], logits[:, 1], offsets))
    found = best_answers(context, windows, QUESTION.num_best, QUESTION.max_answer_tokens)
    text = found.candidates[0].text
    probabilities = softmax(np.array([candidate.score for candidate in found.candidates]))
    start = _place(context, text, windows) if text else 0
    return QuestionAnsweringPrediction(
        answer=text,
        start=start,
        end=start + len(text),
        probability=float(probabilities[0]) if text else 0.0,
        no_answer_is_likelier=found.null_odds > 0,
        was_cut=num_tokens(model, question) > max_query_tokens(model),
    )


def _place(context: str, text: str, windows: Sequence[Window]) -> int:
    """Where the best span starts, in characters: the same words may stand in several places."""
    best, place = float("-inf"), 0
    at = context.find(text)
    while at >= 0:
        for window in windows:
            starts = window.start_logits[window.offsets[:, 0] == at]
            ends = window.end_logits[window.offsets[:, 1] == at + len(text)]
            if len(starts) and len(ends) and float(starts.max() + ends.max()) > best:
                best, place = float(starts.max() + ends.max()), at
        at = context.find(text, at + 1)
    return place
