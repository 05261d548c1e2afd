"""How MLflow serves a finetuned model: through which pipeline of Transformers, and what goes into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.specs.task import ClassificationTask, RegressionTask, TokenClassificationTask, UserTask

_TEXT = "The committee approved the proposal on Tuesday."
_SECOND_TEXT = "The proposal was approved."


@dataclass(frozen=True)
class Serving:
    """What `tracking.register_model` wants to know of a task."""

    pipeline: str
    """Transformers'. It has none for spans and choices: their models answer through their own classes."""
    input_example: tuple[str | Mapping[str, str], ...] | None = None
    """What the pipeline takes, from which MLflow infers the signature."""
    model_config: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the pipeline in MLflow's `pyfunc`."""


def serving_of(task: UserTask) -> Serving:
    """The pipeline of a task, with an example of its input and with its settings."""
    match task:
        case ClassificationTask() | RegressionTask():
            # MLflow drops what the signature does not name: of a pair it must name both texts.
            pair = {"text": _TEXT, "text_pair": _SECOND_TEXT}
            return Serving("text-classification", (_TEXT if task.text_pair is None else pair,))
        case TokenClassificationTask():
            return Serving("token-classification", (_TEXT,), _tagging(task))
        case _:
            return Serving("feature-extraction")


def _tagging(task: TokenClassificationTask) -> dict[str, Any]:
    """Every label is shown, `O` too: MLflow fails on a sentence of which none is left.

    Spans are made of the first piece of each word, the only one that learned a label. Transformers knows those of BIO
    alone; of other labels it would make one of neighbours that are alike, so that they are left to each token.
    """
    settings: dict[str, Any] = {"ignore_labels": []}
    return settings | {"aggregation_strategy": "first"} if task.scheme == "BIO" else settings
