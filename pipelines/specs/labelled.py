"""Labelled files: where they lie, what they look like, and which of their columns mean what."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.corpus import Uri, known_schemes, unpacked_parquet

Format = Literal["csv", "tsv", "jsonl", "parquet", "datasets", "conllu", "conll", "squad"]
ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conllu": "conllu",
    ".conll": "conll",
    ".json": "squad",
}
"""What a file holds, by the end of its name without `.gz` or `.zst`."""

Column = Annotated[str, Field(min_length=1, max_length=200)]
"""Of a table, by name; of a CoNLL file, by number from 1, or in CoNLL-U by the name it has there (`upos`)."""


def _one_is_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Files = Annotated[
    tuple[Uri, ...],
    Field(min_length=1, max_length=1000),
    AfterValidator(known_schemes),
    BeforeValidator(_one_is_many, json_schema_input_type=str | tuple[str, ...]),
]
"""Files with the same columns: local paths, `file://`, `s3://`, `gs://` or `https://`.

Globs (`*`, `?`, `[]`, `**`) name several, but not for `https://`."""


class LabelledData(FrozenModel):
    """The splits of a data set."""

    format: Format | None = None
    """Told by the files' names when absent. `datasets` is a folder of Hugging Face `datasets.save_to_disk`: `train`
    names the folder of a split, or that of all splits."""
    delimiter: Literal[",", ";", "|", "\t"] = ","
    """What stands between the cells of CSV files. `format: tsv` has tabs, and quotes are letters there."""
    train: Files
    validation: Files | None = None
    """What scores are made on; a part of `train` when absent."""
    test: Files | tuple[()] | None = None
    """Predicted by every seed when it is done, and scored where it has labels; nothing is chosen by it. What says that
    there is no label: of classes, numbers and choices no value, and -1 unless it is a label of the training data, in
    `label_range` or the text of a choice; of words in CoNLL `_` or `-`, unless these are labels of the training data,
    and that a file lacks their column; of words in CoNLL-U `_`; of words in a table no list, or one of missing values
    or -1 alone, unless -1 is a label of the training data; of questions no answers, and an empty list of them unless
    the question says that it is impossible, or says nothing while training questions without an answer exist and others
    of the file have theirs.
    Of a folder of all splits its `test` when absent; `[]` leaves that out."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of `train` held out where there is no `validation`, chosen by the hash of what an example asks; of a
    question, by that of its context, so that all questions about a text stay on one side."""
    max_train_examples: Annotated[int, Field(ge=1)] | None = None
    """Train on so many examples at most, the same ones for every seed, chosen by hash; all when absent."""
    max_bad_row_fraction: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The job fails, with a report by file and line, when a larger share of a split's rows than this is malformed."""

    @model_validator(mode="after")
    def _format_is_known(self) -> Self:
        if self.format is None:
            for uri in self.uris:
                if format_of(uri) is None:
                    raise ValueError(
                        f"format must be given where a file's name does not end in {', '.join(ENDINGS)}, got {uri!r}"
                    )
        if self.delimiter != "," and all((self.format or format_of(uri)) != "csv" for uri in self.uris):
            raise ValueError(f"delimiter must be absent where no file is CSV, got {self.delimiter!r}")
        unpacked_parquet(tuple(uri for uri in self.uris if (self.format or format_of(uri)) == "parquet"))
        return self

    @property
    def uris(self) -> tuple[str, ...]:
        """All files that are named."""
        return (*self.train, *(self.validation or ()), *(self.test or ()))


def format_of(uri: str) -> Format | None:
    """What a file holds by its name, or None where that does not tell."""
    name = uri.rsplit("/", 1)[-1].lower().removesuffix(".gz").removesuffix(".zst")
    return next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)
