"""What jobs and models are called, and where a run is found afterwards."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Letters, digits, dots, dashes and underscores: safe as a file name, in a URL and as an MLflow name."""

Alias = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,99}$")]
"""Of a version in MLflow's registry."""


class RecordSpec(FrozenModel):
    """Where the run is found afterwards."""

    experiment: Annotated[str, Field(min_length=1, max_length=200)] = "pretraining"
    """MLflow experiment."""
    model_name: Name | None = None
    """Registered model of the main network; the job's name when absent. The generator's has `-generator` added."""
    alias: Alias = "newest"
    """Registry alias that moves to this job's versions."""
    license: Annotated[str, Field(max_length=200)] | None = None
    """SPDX name of the licence the model is given; stands in its card."""

    @model_validator(mode="after")
    def _alias_is_free(self) -> Self:
        if self.alias.lower() == "latest" or (self.alias[0] in "vV" and self.alias[1:].isdigit()):
            raise ValueError(f"alias must not be 'latest' or a version such as 'v1', got {self.alias!r}")
        return self


class FinetuneRecordSpec(RecordSpec):
    """Where a finetuning job's runs are found afterwards."""

    experiment: Annotated[str, Field(min_length=1, max_length=200)] = "finetuning"
    """MLflow experiment; each task and seed is a child of the job's run."""
    model_name: Name | None = None
    """Registered model of the best seed; the job's name when absent. A suite's have a dash and the task's name
    added."""


class EvaluateRecordSpec(FrozenModel):
    """Where an evaluation job's run is found afterwards. It registers no model."""

    experiment: Annotated[str, Field(min_length=1, max_length=200)] = "evaluation"
    """MLflow experiment."""
