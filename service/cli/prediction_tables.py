"""Predictions as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.specs.prediction import (
    ClassificationPrediction,
    FillMaskPrediction,
    MultipleChoicePrediction,
    PredictAnswer,
    PredictInput,
    Prediction,
    QuestionAnsweringPrediction,
    RegressionPrediction,
    ReplacedTokenPrediction,
    TokenClassificationPrediction,
)
from service.cli.render import REPLACED_FROM, append_marked, printable

_MAX_SHOWN_CHARACTERS = 60
_COLUMNS = {
    "fill_mask": ("text", "mask", "token", "probability"),
    "classification": ("text", "label", "probability", "next"),
    "regression": ("text", "value"),
    "token_classification": ("text", "word", "label", "probability"),
    "question_answering": ("question", "answer", "probability", "characters"),
    "multiple_choice": ("text", "choice", "probability"),
}
_NUMBERS = frozenset({"probability", "value", "mask"})


def print_answer(console: Console, answer: PredictAnswer, inputs: Sequence[PredictInput]) -> None:
    """What a model said to each of its inputs: marked sentences of a discriminator, a table of any other."""
    version = "" if answer.version is None else f" version {answer.version}"
    head = printable(f"{answer.name}{version}, {answer.architecture}")
    console.print(f"{head}\n", markup=False, soft_wrap=True)
    if isinstance(answer.predictions[0], ReplacedTokenPrediction):
        _print_sentences(console, answer, inputs)
    else:
        console.print(_table(answer, inputs))
    for number, prediction in enumerate(answer.predictions, 1):
        if prediction.was_cut:
            console.print(f"Text {number} is longer than the model can read: its end was left out.", markup=False)
        if isinstance(prediction, QuestionAnsweringPrediction) and prediction.no_answer_is_likelier:
            console.print(
                f"Question {number}: to give no answer scores higher, which counts where the model learned to.",
                markup=False,
            )


def marked_text(text: str, prediction: ReplacedTokenPrediction) -> Text:
    """A text as it was given, control characters aside, with a mark on each token that the discriminator takes for
    replaced, or doubts; what was not read is dim.
    """
    marked, at = Text(), 0
    for start, end, probability in _spans(prediction):
        marked.append(printable(text[at:start]))
        append_marked(marked, text[start:end], probability)
        at = end
    marked.append(printable(text[at:]), style="dim" if prediction.was_cut else "")
    return marked


def _spans(prediction: ReplacedTokenPrediction) -> list[tuple[int, int, float]]:
    """Start and end of each stretch of text, and how likely it was replaced. Tokens that share a character, as the
    jamo of a syllable do, are one stretch: the likeliest of them counts.
    """
    spans: list[tuple[int, int, float]] = []
    for token in prediction.tokens:
        start, end, probability = token.start, token.end, token.replaced_probability
        if spans and start < spans[-1][1]:
            last_start, last_end, last_probability = spans.pop()
            start, end = min(start, last_start), max(end, last_end)
            probability = max(probability, last_probability)
        spans.append((start, end, probability))
    return spans


def _print_sentences(console: Console, answer: PredictAnswer, inputs: Sequence[PredictInput]) -> None:
    tokens = 0
    marks = 0
    for prediction, one in zip(answer.predictions, inputs, strict=True):
        assert isinstance(prediction, ReplacedTokenPrediction)
        console.print(marked_text(one.text, prediction), soft_wrap=True)
        tokens += len(prediction.tokens)
        marks += sum(token.replaced_probability >= REPLACED_FROM for token in prediction.tokens)
    legend = f"\n[marked]: taken for replaced; doubted?: from a quarter on. {marks} of {tokens} tokens are marked."
    console.print(legend, style="dim", markup=False)


def _table(answer: PredictAnswer, inputs: Sequence[PredictInput]) -> Table:
    table = Table()
    for column in _COLUMNS[answer.predictions[0].type]:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for prediction, one in zip(answer.predictions, inputs, strict=True):
        shown = one.text if len(one.text) <= _MAX_SHOWN_CHARACTERS else one.text[:_MAX_SHOWN_CHARACTERS] + "…"
        for index, row in enumerate(_rows(prediction, one)):
            # As text: brackets in what people wrote are no markup.
            table.add_row(*(Text(printable(cell)) for cell in ("" if index else " ".join(shown.split()), *row)))
        table.add_section()
    return table


def _rows(prediction: Prediction, one: PredictInput) -> list[tuple[str, ...]]:
    """Cells behind the text, for each line of an input."""
    match prediction:
        case FillMaskPrediction():
            return [
                ("" if place else str(number), candidate.token, _share(candidate.probability))
                for number, mask in enumerate(prediction.masks, 1)
                for place, candidate in enumerate(mask.candidates)
            ]
        case ClassificationPrediction():
            ranked = sorted(prediction.probabilities.items(), key=lambda item: -item[1])
            following = ", ".join(f"{label} {_share(probability)}" for label, probability in ranked[1:3])
            return [(prediction.label, _share(prediction.probabilities[prediction.label]), following)]
        case RegressionPrediction():
            return [(f"{prediction.value:.4g}",)]
        case TokenClassificationPrediction():
            return [(word.word, word.label, _share(word.probability)) for word in prediction.words]
        case QuestionAnsweringPrediction():
            place = f"{prediction.start}–{prediction.end}"
            return [(prediction.answer, _share(prediction.probability), place)]
        case MultipleChoicePrediction():
            ranked_choices = sorted(
                zip(one.choices or (), prediction.probabilities, strict=True), key=lambda item: -item[1]
            )
            return [(choice, _share(probability)) for choice, probability in ranked_choices]
        case ReplacedTokenPrediction():
            return [(str(marked_text(one.text, prediction)),)]


def _share(probability: float) -> str:
    return f"{probability:.1%}"
