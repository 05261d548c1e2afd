"""Why a model gives no answer."""

from __future__ import annotations

from typing import Any

from pipelines.errors import PipelineError
from pipelines.specs.prediction import FailureCode, PredictFailure


class PredictError(PipelineError):
    """There is no prediction, and the message says why to whoever asked.

    Args:
        code: what kind of fault it is.
        message: a sentence; where `field` is given, the rule that it breaks.
        field: JSON pointer into the request.
    """

    def __init__(self, code: FailureCode, message: str, field: str | None = None) -> None:
        super().__init__(f"{field} {message}" if field else message)
        self.code = code
        self.message = message
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message, self.field)

    @property
    def failure(self) -> PredictFailure:
        """As `answer.json` has it."""
        return PredictFailure(code=self.code, message=self.message, field=self.field)
