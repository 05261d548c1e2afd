"""What one stage hands the next: frozen records, and the digests they are found by.

An artifact lies under the digest of what made it. Its `manifest.json` is written last and atomically: the artifact
is complete exactly when that file exists.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from pipelines import storage

MANIFEST_FILE = "manifest.json"


def digest_of(value: Mapping[str, Any]) -> str:
    """Sha256 over canonical JSON: sorted keys, no spaces, UTF-8. 64 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class SpecialTokenIds(NamedTuple):
    """Ids of the five tokens the method gives a meaning to, in the order of BERT's vocabulary."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


@dataclass(frozen=True, slots=True)
class Shard:
    """A run of tokens of one source and split: `{name}.bin` (little-endian ids) and `{name}.docs` (int64 starts)."""

    source: int
    split: str
    """`train` or `validation`."""
    name: str
    """Path below the corpus, without its ending."""
    num_tokens: int
    num_documents: int
    """Documents that start in this shard; `.docs` holds where, in tokens from the shard's start."""
    size_bytes: int
    sha256: str
    """Of the `.bin` file."""
    docs_sha256: str


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """A tokenised corpus: everything the loader needs, small enough to send to every worker."""

    uri: str
    digest: str
    tokenizer_uri: str
    """Folder in the Transformers layout."""
    vocab_size: int
    """Ids the tokenizer can produce; never padded."""
    special: SpecialTokenIds
    token_dtype: str
    """`uint16` or `uint32`."""
    source_train_tokens: tuple[int, ...]
    """Training tokens by source, in the spec's order."""
    num_train_tokens: int
    num_validation_tokens: int
    num_train_documents: int
    num_validation_documents: int
    num_bytes: int
    """UTF-8 bytes of the text that was kept, held-out text included."""
    counts: Mapping[str, int]
    """Records read, malformed by kind, dropped by reason."""
    shards: tuple[Shard, ...]
    """In order of source, split and position."""
    report: tuple[str, ...] = ()
    """The first malformed records, one line each, by file and line."""
    was_found: bool = field(default=False, compare=False)
    """True where the corpus was complete already and nothing was done."""

    @property
    def unigram_counts_uri(self) -> str:
        """A `.npy` of int64[vocab_size]: how often each id stands in the training tokens."""
        return storage.join(self.uri, "unigram_counts.npy")

    def shards_of(self, split: str, source: int | None = None) -> tuple[Shard, ...]:
        """Shards of a split, of one source or of all in order."""
        return tuple(s for s in self.shards if s.split == split and source in (None, s.source))

    def to_manifest(self) -> dict[str, Any]:
        """The record as `manifest.json` holds it: without places, so a storage tree can be moved."""
        record = asdict(self)
        del record["uri"], record["was_found"], record["tokenizer_uri"]
        return record | {"special": self.special._asdict(), "tokenizer": self.tokenizer_uri.rsplit("/", 1)[1]}

    @classmethod
    def read(cls, uri: str) -> PreparedCorpus:
        """The complete corpus at `uri`.

        Raises:
            StorageError: there is none, or its manifest is damaged.
        """
        manifest = storage.read_json(storage.join(uri, MANIFEST_FILE))
        root = storage.normalise(uri).rsplit("/", 2)[0]
        try:
            return cls(
                uri=storage.normalise(uri),
                tokenizer_uri=storage.join(root, "tokenizers", manifest.pop("tokenizer")),
                special=SpecialTokenIds(**manifest.pop("special")),
                shards=tuple(Shard(**shard) for shard in manifest.pop("shards")),
                source_train_tokens=tuple(manifest.pop("source_train_tokens")),
                report=tuple(manifest.pop("report")),
                **manifest,
            )
        except (KeyError, TypeError) as error:
            raise storage.StorageError(uri, f"manifest.json is not one of this version: {error}") from error

    def as_found(self) -> PreparedCorpus:
        """The same corpus, marked as not made by this call."""
        return replace(self, was_found=True)
