"""From inputs to predictions, for each kind of head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from pipelines.predicting.errors import PredictError
from pipelines.predicting.model import LoadedModel
from pipelines.predicting.rows import Pieces, logits_of_rows, num_tokens, pair_rows, pieces_of, text_rows
from pipelines.predicting.spans import answer_question
from pipelines.predicting.words import words_of
from pipelines.specs.prediction import (
    ClassificationPrediction,
    FillMaskPrediction,
    MaskCandidate,
    MaskPrediction,
    MultipleChoicePrediction,
    PredictInput,
    Prediction,
    QuestionAnsweringPrediction,
    RegressionPrediction,
    ReplacedTokenPrediction,
    TokenClassificationPrediction,
    TokenPrediction,
    WordPrediction,
)

NUM_CANDIDATES = 5
"""Tokens shown for each mask."""
_READS_PAIRS = ("classification", "regression", "question_answering")


def predict(model: LoadedModel, inputs: Sequence[PredictInput]) -> tuple[Prediction, ...]:
    """What the model says to each input. All are checked before the first is read.

    Raises:
        PredictError: the model cannot read an input; `field` says which.
    """
    for index, one in enumerate(inputs):
        _check_input(model, one, f"/inputs/{index}")
    answer = _HEADS[model.task]
    # One at a time: what is tried by hand is little, and rows of one input pad each other least.
    return tuple(answer(model, one) for one in inputs)


def _check_input(model: LoadedModel, one: PredictInput, pointer: str) -> None:
    what = f"{model.architecture} is for {model.task.replace('_', ' ')}"
    if model.task == "question_answering" and one.text_pair is None:
        raise _bad(f"{pointer}/text_pair", f"must be the context in which text is answered, for {what}; got none")
    if one.text_pair is not None and model.task not in _READS_PAIRS:
        raise _bad(f"{pointer}/text_pair", f"must be absent, for {what}")
    if model.task == "multiple_choice" and one.choices is None:
        raise _bad(f"{pointer}/choices", f"must be given, for {what}; got none")
    if one.choices is not None and model.task != "multiple_choice":
        raise _bad(f"{pointer}/choices", f"must be absent, for {what}")
    if (one.text_pair is not None or one.choices is not None) and model.network.config.type_vocab_size < 2:
        raise PredictError("unsuitable_model", "a model that reads two texts must have two token types, got one")
    texts = {"text": one.text, "text_pair": one.text_pair}
    texts |= {f"choices/{number}": choice for number, choice in enumerate(one.choices or ())}
    for name, text in texts.items():
        if text is not None and not num_tokens(model, text):
            raise _bad(f"{pointer}/{name}", "must hold characters that the model's tokenizer keeps, got none of them")
    if model.task == "fill_mask" and model.special.mask not in pieces_of(model, one.text).ids:
        mask = model.tokenizer.id_to_token(model.special.mask)
        raise _bad(f"{pointer}/text", f"must hold {mask} among its first {model.max_length - 2} tokens, got none")


def _bad(field: str, rule: str) -> PredictError:
    return PredictError("bad_input", rule, field)


def _replaced_tokens(model: LoadedModel, one: PredictInput) -> ReplacedTokenPrediction:
    pieces, logits = _read(model, one.text)
    tokens = tuple(
        TokenPrediction(token=token, start=start, end=end, replaced_probability=float(probability))
        for token, (start, end), probability in zip(pieces.tokens, pieces.offsets, expit(logits), strict=True)
    )
    return ReplacedTokenPrediction(tokens=tokens, was_cut=pieces.was_cut)


def _filled_masks(model: LoadedModel, one: PredictInput) -> FillMaskPrediction:
    pieces, logits = _read(model, one.text)
    masks = []
    for token_id, (start, end), row in zip(pieces.ids, pieces.offsets, logits, strict=True):
        if token_id != model.special.mask:
            continue
        probabilities = softmax(row)
        best = np.argsort(-probabilities, kind="stable")[:NUM_CANDIDATES]
        candidates = tuple(
            # A network may have more outputs than the vocabulary has entries.
            MaskCandidate(token=model.tokenizer.id_to_token(int(index)) or "", probability=float(probabilities[index]))
            for index in best
        )
        masks.append(MaskPrediction(start=start, end=end, candidates=candidates))
    return FillMaskPrediction(masks=tuple(masks), was_cut=pieces.was_cut)


def _classified(model: LoadedModel, one: PredictInput) -> ClassificationPrediction:
    logits, was_cut = _read_whole(model, one)
    probabilities = dict(zip(model.labels, map(float, softmax(logits)), strict=True))
    return ClassificationPrediction(
        label=model.labels[int(logits.argmax())], probabilities=probabilities, was_cut=was_cut
    )


def _valued(model: LoadedModel, one: PredictInput) -> RegressionPrediction:
    logits, was_cut = _read_whole(model, one)
    return RegressionPrediction(value=float(logits[0]), was_cut=was_cut)


def _tagged(model: LoadedModel, one: PredictInput) -> TokenClassificationPrediction:
    pieces, logits = _read(model, one.text)
    words = []
    for word in words_of(one.text, pieces.offsets + pieces.cut_offsets):
        if word.last >= len(pieces.offsets):
            break  # of this one a part at most was read
        probabilities = softmax(logits[word.first])
        label = int(probabilities.argmax())
        words.append(
            WordPrediction(
                word=one.text[word.start : word.end],
                start=word.start,
                end=word.end,
                label=model.labels[label],
                probability=float(probabilities[label]),
            )
        )
    return TokenClassificationPrediction(words=tuple(words), was_cut=pieces.was_cut)


def _answered(model: LoadedModel, one: PredictInput) -> QuestionAnsweringPrediction:
    assert one.text_pair is not None
    return answer_question(model, one.text, one.text_pair)


def _chosen(model: LoadedModel, one: PredictInput) -> MultipleChoicePrediction:
    assert one.choices is not None
    scores = np.concatenate(logits_of_rows(model, pair_rows(model, [(one.text, choice) for choice in one.choices])))
    probabilities = softmax(scores)
    length = num_tokens(model, one.text) + max(num_tokens(model, choice) for choice in one.choices)
    return MultipleChoicePrediction(
        choice=int(probabilities.argmax()),
        probabilities=tuple(map(float, probabilities)),
        was_cut=length > model.max_length - 3,
    )


def _read(model: LoadedModel, text: str) -> tuple[Pieces, npt.NDArray[np.float32]]:
    """The tokens of a text and the logits of each."""
    (logits,) = logits_of_rows(model, text_rows(model, text))
    return pieces_of(model, text), logits[1:-1]  # without [CLS] and [SEP]


def _read_whole(model: LoadedModel, one: PredictInput) -> tuple[npt.NDArray[np.float32], bool]:
    """The logits of a text or a pair, and whether it was cut."""
    if one.text_pair is None:
        (logits,) = logits_of_rows(model, text_rows(model, one.text))
        return logits, num_tokens(model, one.text) > model.max_length - 2
    (logits,) = logits_of_rows(model, pair_rows(model, [(one.text, one.text_pair)]))
    return logits, num_tokens(model, one.text) + num_tokens(model, one.text_pair) > model.max_length - 3


_HEADS: dict[str, Callable[[LoadedModel, PredictInput], Prediction]] = {
    "replaced_token_detection": _replaced_tokens,
    "fill_mask": _filled_masks,
    "classification": _classified,
    "regression": _valued,
    "token_classification": _tagged,
    "question_answering": _answered,
    "multiple_choice": _chosen,
}
