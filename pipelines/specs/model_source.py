"""Where a pretrained network is taken from: MLflow's registry, or files."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.initialization import WeightsUri
from pipelines.specs.record import Alias, Name

DEFAULT_ALIAS = "newest"


class RegisteredNetwork(FrozenModel):
    """A model of MLflow's registry."""

    type: Literal["registered"] = "registered"
    name: Name
    alias: Alias | None = None
    """`newest` where there is no version either."""
    version: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.alias is not None and self.version is not None:
            raise ValueError(f"alias must be absent where version is given, got {self.alias!r} and {self.version}")
        return self

    @property
    def uri(self) -> str:
        """As MLflow writes it."""
        return (
            f"models:/{self.name}/{self.version}"
            if self.version
            else f"models:/{self.name}@{self.alias or DEFAULT_ALIAS}"
        )


class NetworkFiles(FrozenModel):
    """Weights that lie somewhere."""

    type: Literal["files"] = "files"
    uri: WeightsUri
    """A folder in the layout of Transformers, a checkpoint of google-research/electra (what stands before `.index`), or
    a job's directory or checkpoint."""
    tokenizer_uri: WeightsUri | None = None
    """A `vocab.txt`, a `tokenizer.json`, or a folder that holds one; beside the weights when absent."""
    lowercase: bool | None = None
    """For a bare `vocab.txt`: whether text is lowercased. When absent, as `do_lower_case` of a `tokenizer_config.json`
    beside it says, or the job that the weights are of; true where nothing does."""
    strip_accents: bool | None = None
    """For a bare `vocab.txt`. When absent, as is said in the same places, or else as `lowercase`."""


NetworkSource = Annotated[RegisteredNetwork | NetworkFiles, Field(discriminator="type")]
