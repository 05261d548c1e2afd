"""`kind: evaluate`: pretrained networks held against text as they are, without any training."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from electra_core.config import FrozenModel, MaskingConfig
from pipelines.specs.compute import EvaluateComputeSpec
from pipelines.specs.corpus import CleaningSpec, Source, Uri, known_schemes, unpacked_parquet
from pipelines.specs.labelled import Column, format_of
from pipelines.specs.model_source import NetworkSource
from pipelines.specs.record import EvaluateRecordSpec, Name


def _one_is_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _pairs_are_unpacked(uris: tuple[str, ...]) -> tuple[str, ...]:
    unpacked_parquet(tuple(uri for uri in uris if format_of(uri) == "parquet"))
    return uris


MAX_TOKENS = 100_000_000
"""Of a source: they are scored in one process, and held there."""

PairFiles = Annotated[
    tuple[Uri, ...],
    Field(min_length=1, max_length=1000),
    AfterValidator(known_schemes),
    AfterValidator(_pairs_are_unpacked),
    BeforeValidator(_one_is_many, json_schema_input_type=str | tuple[str, ...]),
]


class MinimalPairsSpec(FrozenModel):
    """Pairs of sentences that differ in little, one of which is better (BLiMP, arXiv:1912.00582, and its like)."""

    uris: PairFiles
    """Files, directories and globs as of a corpus, of JSON lines, CSV, TSV or Parquet by their names; `.gz` and `.zst`
    too, but for Parquet. Each file has an accuracy."""
    sentence_good: Column = "sentence_good"
    """Key of the better sentence."""
    sentence_bad: Column = "sentence_bad"
    phenomenon: Column = "phenomenon"
    """Key of what the pair is about, in a few words; pairs without it count under their file's name. BLiMP's is
    `linguistics_term`."""
    max_pairs_per_file: Annotated[int, Field(ge=1)] | None = None
    """The first so many; all when absent."""
    max_bad_row_fraction: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The job fails, with a report by file and line, when a larger share of a file's lines is malformed."""


class UnseenTextSpec(FrozenModel):
    """Text the networks were not trained on, read as pretraining reads it: cleaned, and cut into full rows."""

    sources: Annotated[dict[Name, Source], Field(min_length=1, max_length=100)]
    """By name, each with figures of its own. Weights play no part."""
    cleaning: CleaningSpec = CleaningSpec()
    """Documents that occur twice in a source count once."""
    sequence_length: Annotated[int, Field(ge=8, le=65_536)] = 128
    """Tokens of a row, [CLS] and [SEP] included; that of pretraining is the fair one."""
    max_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 2048
    """Rows of a source at most: reading stops there."""
    masking: MaskingConfig = MaskingConfig()
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Fixes which positions are masked and the draws behind each sample."""
    max_bad_record_fraction: Annotated[float, Field(ge=0, le=1)] = 0.01
    """As of a corpus, of what is read of a source."""

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.max_rows * self.sequence_length > MAX_TOKENS:
            raise ValueError(
                f"max_rows × sequence_length must be at most {MAX_TOKENS}, got {self.max_rows} and "
                f"{self.sequence_length}"
            )
        return self


class EvaluateSpec(FrozenModel):
    """One evaluation job."""

    schema_version: Literal[1] = 1
    kind: Literal["evaluate"]
    name: Name = "electra-evaluated"
    """What people call the job; names need not be unique."""
    discriminator: NetworkSource | None = None
    """Prefers the sentence with the higher sum of log P(original)."""
    generator: NetworkSource | None = None
    """A masked language model of the Electra architecture; prefers the sentence with the higher
    pseudo-log-likelihood."""
    minimal_pairs: MinimalPairsSpec | None = None
    unseen_text: UnseenTextSpec | None = None
    """The losses of both networks. The discriminator reads what the generator writes, so there must be one."""
    compute: EvaluateComputeSpec = EvaluateComputeSpec()
    record: EvaluateRecordSpec = EvaluateRecordSpec()

    @model_validator(mode="after")
    def _has_something_to_do(self) -> Self:
        if self.discriminator is None and self.generator is None:
            raise ValueError("discriminator or generator must be given, got neither")
        if self.minimal_pairs is None and self.unseen_text is None:
            raise ValueError("minimal_pairs or unseen_text must be given, got neither")
        if self.unseen_text is not None and self.generator is None:
            raise ValueError(
                "generator must be given where unseen_text is: its samples are what a discriminator is asked about, "
                "got none"
            )
        return self

    @property
    def networks(self) -> dict[str, NetworkSource]:
        """Those that are given, by what they are."""
        given = {"discriminator": self.discriminator, "generator": self.generator}
        return {name: source for name, source in given.items() if source is not None}
