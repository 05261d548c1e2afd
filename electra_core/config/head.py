"""What sits on a pretrained encoder while it is finetuned."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from electra_core.config.base import FrozenModel

TaskKind = Literal["classification", "regression", "token_classification", "question_answering", "multiple_choice"]
"""What a head predicts: one label or one number for a text, a label for each token, a span, one of several texts."""

HeadStyle = Literal["transformers", "original"]
"""Whose layers a classification head has; see `HeadConfig.style`."""

_OUTPUTS: dict[TaskKind, int] = {"regression": 1, "question_answering": 2, "multiple_choice": 1}
_STYLED: tuple[TaskKind, ...] = ("classification", "regression")


class HeadConfig(FrozenModel):
    """A task's head."""

    task: TaskKind
    num_labels: Annotated[int, Field(ge=1)] = 1
    """Labels of a classification, of texts or of tokens; 1 elsewhere."""
    style: HeadStyle = "transformers"
    """Of a text's classification or regression: `transformers` is [CLS] → dropout → dense → GELU → dropout → linear, as
    in `ElectraForSequenceClassification`; `original` is [CLS] → dropout → linear, as in G. Both export into
    Transformers' class: see `electra_core.conversion.finetuned`."""
    dropout_prob: Annotated[float, Field(ge=0, lt=1)] = 0.1

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.task in _OUTPUTS and self.num_labels != 1:
            raise ValueError(f"num_labels must be 1 where task is {self.task!r}, got {self.num_labels}")
        if self.task not in _OUTPUTS and self.num_labels < 2:
            raise ValueError(f"num_labels must be at least 2 where task is {self.task!r}, got {self.num_labels}")
        if self.style == "original" and self.task not in _STYLED:
            raise ValueError(
                f"style must be 'transformers' unless task is {' or '.join(map(repr, _STYLED))}, got {self.style!r} "
                f"and {self.task!r}"
            )
        return self

    @property
    def num_outputs(self) -> int:
        """Logits for each text or token."""
        return _OUTPUTS.get(self.task, self.num_labels)
