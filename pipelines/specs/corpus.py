"""What text to read, how to clean it, and how to cut it into tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from electra_core.config import FrozenModel

SUPPORTED_SCHEMES = ("file", "s3", "gs", "https", "http")
"""URI schemes a source may have; a path without a scheme is a local file."""

Uri = Annotated[str, Field(min_length=1, max_length=4096)]
"""A path, glob or directory: local, or with one of `SUPPORTED_SCHEMES`."""


def known_schemes(uris: tuple[str, ...]) -> tuple[str, ...]:
    """The same URIs; `ValueError` where one cannot be read by anyone."""
    for uri in uris:
        scheme, separator, _ = uri.partition("://")
        if separator and scheme not in SUPPORTED_SCHEMES:
            raise ValueError(f"uris must have a scheme of {', '.join(SUPPORTED_SCHEMES)} or none, got {uri!r}")
        if "\x00" in uri or "\n" in uri:
            raise ValueError(f"uris must not contain line ends or NUL, got {uri!r}")
    return uris


def unpacked_parquet(uris: tuple[str, ...]) -> tuple[str, ...]:
    """The same URIs of Parquet files; `ValueError` where one is compressed as a whole: its end, with the places of all
    else, is read first.
    """
    for uri in uris:
        if uri.lower().endswith((".gz", ".zst")):
            raise ValueError(f"Parquet files must not end in .gz or .zst, for they are compressed within, got {uri!r}")
    return uris


class _FileSource(FrozenModel):
    uris: Annotated[tuple[Uri, ...], Field(min_length=1, max_length=10_000)]
    """Files, directories (read recursively) and globs (`*`, `?`, `[]`, `**`): local paths, `file://`, `s3://`,
    `gs://`, or `https://` (single files only). `.gz` and `.zst` files are read as they are, but for Parquet's."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Times this source is read per pass over the corpus: 2 reads it twice, 0.5 reads half of it, another half each
    pass."""

    @field_validator("uris", mode="before")
    @classmethod
    def _one_is_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("uris")
    @classmethod
    def _schemes_are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return known_schemes(value)


class TextSource(_FileSource):
    """Plain text files."""

    type: Literal["text"] = "text"
    document: Literal["file", "paragraph", "line"] = "file"
    """What one document is: the whole file, a run of lines between empty lines, or each line."""


class JsonlSource(_FileSource):
    """JSON lines: one object a line."""

    type: Literal["jsonl"] = "jsonl"
    text_field: Annotated[str, Field(min_length=1, max_length=200)] = "text"
    """Key whose string value is the document."""


class ParquetSource(_FileSource):
    """Parquet files: one row a document."""

    type: Literal["parquet"] = "parquet"
    text_field: Annotated[str, Field(min_length=1, max_length=200)] = "text"
    """Column of strings that holds the document."""

    @field_validator("uris")
    @classmethod
    def _files_are_unpacked(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return unpacked_parquet(value)


class PythonDocsSource(FrozenModel):
    """The documentation inside the Python packages installed where the job runs: docstrings, package descriptions,
    .rst and .md files. Tens of MB of real text on any machine.
    """

    type: Literal["python_docs"] = "python_docs"
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Times this source is read per pass over the corpus."""
    packages: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] | None = None
    """Distribution names to read; all of them when absent."""
    include_standard_library: bool = True
    """Read Python's own library too."""


Source = Annotated[TextSource | JsonlSource | ParquetSource | PythonDocsSource, Field(discriminator="type")]


class CleaningSpec(FrozenModel):
    """What happens to a document between its file and the tokenizer."""

    unicode_normalization: Literal["NFC", "NFKC", "none"] = "NFC"
    """Unicode normal form. Control characters other than line ends and tabs are dropped whatever the form."""
    min_characters: Annotated[int, Field(ge=1)] = 50
    """Shorter documents are dropped."""
    max_characters: Annotated[int, Field(ge=1)] | None = None
    """Longer documents are dropped; none are when absent."""
    deduplicate: bool = True
    """Drop every document whose cleaned text equals an earlier one's."""

    @model_validator(mode="after")
    def _limits_are_ordered(self) -> Self:
        if self.max_characters is not None and self.max_characters < self.min_characters:
            raise ValueError(
                f"max_characters must be at least min_characters ({self.min_characters}), got {self.max_characters}"
            )
        return self


class CorpusSpec(FrozenModel):
    """Sources, cleaning and the held-out split."""

    sources: Annotated[tuple[Source, ...], Field(min_length=1, max_length=1000)] = (PythonDocsSource(),)
    cleaning: CleaningSpec = CleaningSpec()
    validation_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.01
    """Share of documents held out, chosen by the hash of their text: a document never changes sides."""
    max_bad_record_fraction: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The job fails, with a report by file and line, when a larger share of records than this is malformed: broken
    UTF-8, broken JSON, a missing or non-text field."""


class WordPieceSpec(FrozenModel):
    """A WordPiece vocabulary trained on the corpus."""

    type: Literal["wordpiece"] = "wordpiece"
    vocab_size: Annotated[int, Field(ge=128, le=1_000_000)] = 30_522
    """Entries, the five special tokens counted. A small corpus can give fewer."""
    lowercase: bool = True
    strip_accents: bool | None = None
    """None follows `lowercase`, as BERT does. Set it to false for languages whose accents tell words apart."""
    min_frequency: Annotated[int, Field(ge=1)] = 2
    """Times a pair must occur to become an entry."""
    limit_alphabet: Annotated[int, Field(ge=16)] = 1000
    """Single characters kept at most; rarer ones become [UNK]."""
    max_training_bytes: Annotated[int, Field(ge=1_000)] = 200_000_000
    """Text the vocabulary is trained on at most, sampled evenly over the corpus, in bytes of UTF-8."""

    @model_validator(mode="after")
    def _alphabet_fits(self) -> Self:
        if self.limit_alphabet > self.vocab_size - 5:
            raise ValueError(
                "limit_alphabet must leave room for the 5 special tokens in vocab_size, "
                f"got {self.limit_alphabet} and {self.vocab_size}"
            )
        return self


class PretrainedTokenizerSpec(FrozenModel):
    """A vocabulary that exists: BERT's WordPiece in a `vocab.txt`, or a `tokenizer.json`."""

    type: Literal["pretrained"] = "pretrained"
    uri: Uri
    """A `vocab.txt`, a `tokenizer.json`, or a folder that holds one. It must know [PAD], [UNK], [CLS], [SEP] and
    [MASK]."""
    lowercase: bool | None = None
    """For a bare `vocab.txt`: whether text is lowercased. When absent, as `do_lower_case` of a `tokenizer_config.json`
    beside it says; true where nothing does. A `tokenizer.json` brings its own rule. Where entries have capitals that
    lowercased text never has, a warning says so."""
    strip_accents: bool | None = None
    """For a bare `vocab.txt`. When absent, as is said in the same place, or else as `lowercase`."""


TokenizerSpec = Annotated[WordPieceSpec | PretrainedTokenizerSpec, Field(discriminator="type")]


def decisive_words(corpus: CorpusSpec, tokenizer: TokenizerSpec) -> dict[str, Any]:
    """All that a spec says that decides its prepared corpus: weights steer the loader, and how much may be malformed
    decides whether a corpus will do.
    """
    words = corpus.model_dump(mode="json", exclude={"max_bad_record_fraction"})
    for source in words["sources"]:
        del source["weight"]
    return {"corpus": words, "tokenizer": tokenizer.model_dump(mode="json")}
