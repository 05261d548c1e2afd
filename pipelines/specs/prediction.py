"""Trying a registered model: what is asked, what comes back, and the documents that carry both to Ray and back.

`{storage_uri}/predictions/{id}/` holds
    request.json  a `PredictJob`, written by the service before it asks Ray
    answer.json   a `PredictOutcome`, written by `pipelines.predict` as its last act
and is deleted when the answer has been given.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from electra_core.config import FrozenModel
from pipelines.specs.document import Document
from pipelines.specs.model_source import RegisteredNetwork

REQUEST_FILE = "request.json"
ANSWER_FILE = "answer.json"
MAX_TEXT_CHARACTERS = 20_000
MAX_INPUTS = 32
MAX_CHOICES = 26
MAX_TOTAL_CHARACTERS = 100_000
"""Of all texts, pairs and choices of a request."""
MAX_REQUEST_BYTES = 12 * MAX_TOTAL_CHARACTERS + 64 * 1024
"""Of a request as JSON. The longest way to write a character is a pair of escapes, of 6 bytes each, for one outside the
basic plane, as an emoji; the rest is for keys, commas and blanks."""

PredictionType = Literal[
    "replaced_token_detection",
    "fill_mask",
    "classification",
    "regression",
    "token_classification",
    "question_answering",
    "multiple_choice",
]


def _is_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must hold more than blanks")
    return text


InputText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS), AfterValidator(_is_not_blank)]


class PredictInput(FrozenModel):
    """One text, with what some models read beside it."""

    text: InputText
    """What is read; the question, where the model answers questions. A model that fills masks needs `[MASK]` in it."""
    text_pair: InputText | None = None
    """A second text: of a pair, where the model was finetuned on pairs, or the context that is searched for the answer
    to a question."""
    choices: Annotated[tuple[InputText, ...], Field(min_length=2, max_length=MAX_CHOICES)] | None = None
    """The texts one of which goes with `text`; for models of multiple choice, and for no others."""

    @property
    def num_characters(self) -> int:
        """Of all that is read."""
        return sum(map(len, (self.text, self.text_pair or "", *(self.choices or ()))))


class PredictRequest(FrozenModel):
    """What a model is asked."""

    inputs: Annotated[tuple[PredictInput, ...], Field(min_length=1, max_length=MAX_INPUTS)]
    """Together 100 000 characters at most."""

    @field_validator("inputs")
    @classmethod
    def _is_little(cls, value: tuple[PredictInput, ...]) -> tuple[PredictInput, ...]:
        total = sum(one.num_characters for one in value)
        if total > MAX_TOTAL_CHARACTERS:
            raise ValueError(
                f"texts, pairs and choices must hold at most {MAX_TOTAL_CHARACTERS} characters in all, got {total}"
            )
        return value


class PredictJob(Document):
    """`request.json`."""

    model: RegisteredNetwork
    inputs: tuple[PredictInput, ...]
    timeout_seconds: float
    """Time for the whole of it, from the moment that Ray starts it."""


class _Prediction(Document):
    was_cut: bool = False
    """The input was longer than the model can read, and its end was not looked at. Contexts of questions are read in
    windows and never cut."""


class TokenPrediction(Document):
    """One token of the text."""

    token: str
    """As the vocabulary has it: `##` goes on with the word before."""
    start: int
    """In characters of the text; `text[start:end]` is what the token stands for. Spans may coincide: a syllable of
    Hangul or an emoji can be several tokens, and each has the whole character as its span."""
    end: int
    replaced_probability: float


class ReplacedTokenPrediction(_Prediction):
    """Of a discriminator: which tokens it thinks were replaced."""

    type: Literal["replaced_token_detection"] = "replaced_token_detection"
    tokens: tuple[TokenPrediction, ...]
    """In order, without [CLS] and [SEP]."""


class MaskCandidate(Document):
    """A token that may stand in place of a mask."""

    token: str
    probability: float


class MaskPrediction(Document):
    """One [MASK] of the text."""

    start: int
    """In characters of the text."""
    end: int
    candidates: tuple[MaskCandidate, ...]
    """The likeliest first."""


class FillMaskPrediction(_Prediction):
    """Of a generator, or an encoder that was trained to fill masks."""

    type: Literal["fill_mask"] = "fill_mask"
    masks: tuple[MaskPrediction, ...]


class ClassificationPrediction(_Prediction):
    """A label for the text or the pair."""

    type: Literal["classification"] = "classification"
    label: str
    probabilities: dict[str, float]
    """By label, in the order of the model's outputs."""


class RegressionPrediction(_Prediction):
    """A number for the text or the pair, in the unit of the labels it was trained on."""

    type: Literal["regression"] = "regression"
    value: float


class WordPrediction(Document):
    """One word of the text. Blanks part words; each mark of punctuation before or behind a word is one too, as in
    CoNLL's files, and so is each Chinese character, as BERT reads them.
    """

    word: str
    start: int
    """In characters of the text."""
    end: int
    label: str
    probability: float


class TokenClassificationPrediction(_Prediction):
    """A label for each word, given by the first of its tokens: no other was trained to have one."""

    type: Literal["token_classification"] = "token_classification"
    words: tuple[WordPrediction, ...]
    """In order; a word of which only a part could be read is left out."""


class QuestionAnsweringPrediction(_Prediction):
    """The span of `text_pair` that answers `text` best."""

    type: Literal["question_answering"] = "question_answering"
    answer: str
    start: int
    """In characters of `text_pair`."""
    end: int
    probability: float
    """Among the best spans, as SQuAD's scripts have it."""
    no_answer_is_likelier: bool
    """To give no answer scores higher than this span. Means something only where the model was trained on questions
    without an answer too."""


class MultipleChoicePrediction(_Prediction):
    """Which of the choices goes with the text."""

    type: Literal["multiple_choice"] = "multiple_choice"
    choice: int
    """Counted from 0."""
    probabilities: tuple[float, ...]
    """In the order of the choices."""


Prediction = Annotated[
    ReplacedTokenPrediction
    | FillMaskPrediction
    | ClassificationPrediction
    | RegressionPrediction
    | TokenClassificationPrediction
    | QuestionAnsweringPrediction
    | MultipleChoicePrediction,
    Field(discriminator="type"),
]


class PredictAnswer(Document):
    """What a model says to its inputs."""

    name: str
    """Of the registered model; the folder, where the model lies in one."""
    version: str | None = None
    """In MLflow's registry; null for a folder."""
    architecture: str
    """Transformers' class."""
    predictions: tuple[Prediction, ...]
    """In the order of the inputs, all of one type."""


FailureCode = Literal["model_not_found", "unsuitable_model", "bad_input", "timed_out", "unavailable", "internal"]


class PredictFailure(Document):
    """Why there is no answer."""

    code: FailureCode
    message: str
    """For people; where `field` is given, the rule that it breaks."""
    field: str | None = None
    """JSON pointer into the request, such as `/inputs/0/text`."""


class PredictOutcome(Document):
    """`answer.json`: one of the two."""

    answer: PredictAnswer | None = None
    failure: PredictFailure | None = None
