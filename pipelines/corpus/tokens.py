"""Stage 3: token shards.

Ray tasks tokenise, one thread each; the driver takes their tokens in order, two bytes each, and cuts them into shards
of `SHARD_TOKENS`. So the shards depend on the texts and the tokenizer alone, whatever ran where.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines import storage
from pipelines.corpus.documents import PartWork, Split, part_work, read_part
from pipelines.corpus.encoding import Encoder
from pipelines.corpus.progress import Progress
from pipelines.corpus.ray_data import map_in_order
from pipelines.corpus.texts import Texts
from pipelines.errors import CorpusError
from pipelines.storage.artifacts import MANIFEST_FILE, PreparedCorpus, Shard
from pipelines.tokenizer import load_tokenizer, special_ids, vocab_size

FORMAT_VERSION = 1
SHARD_TOKENS = 1 << 25
"""67 MB in uint16. Part of the format."""
SPLITS = ("train", "validation")


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The tokens of one file of texts, in both splits."""

    part: int
    tokens: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
    starts: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
    """int64: where each document starts."""
    num_empty: int
    """Documents the tokenizer finds nothing in."""


def digest_inputs(texts_digest: str, tokenizer_digest: str, validation_fraction: float) -> dict[str, Any]:
    """Everything that decides the bytes of this stage."""
    return {
        "artifact": "corpus",
        "format": FORMAT_VERSION,
        "texts": texts_digest,
        "tokenizer": tokenizer_digest,
        "validation_fraction": validation_fraction,
    }


def write_tokens(
    uri: str, digest: str, tokenizer_uri: str, texts: Texts, split: Split, progress: Progress
) -> PreparedCorpus:
    """Tokenise everything and write the shards, the manifest last."""
    tokenizer = load_tokenizer(tokenizer_uri)
    size, special = vocab_size(tokenizer), special_ids(tokenizer)
    dtype = np.dtype("<u2" if size <= 65_535 else "<u4")
    parts = list(part_work(texts))
    num_bytes = sum(part.num_bytes for part in parts)
    unigram_counts = np.zeros(size, np.int64)
    shards: list[Shard] = []
    done_bytes = num_tokens = num_empty = 0
    streams: dict[str, _ShardStream] = {}
    source = -1
    work = functools.partial(_tokenise_part, tokenizer_uri=tokenizer_uri, split=split, dtype=dtype.str)
    for result in map_in_order(parts, work, progress.waiting):
        part = parts[result.part]
        if part.source != source:
            shards += _close(streams)
            source = part.source
            streams = {name: _ShardStream(uri, source, name, dtype) for name in SPLITS}
        for name, tokens, starts in zip(SPLITS, result.tokens, result.starts, strict=True):
            streams[name].add(tokens, starts)
        unigram_counts += np.bincount(result.tokens[0], minlength=size)
        done_bytes += part.num_bytes
        num_tokens += sum(len(tokens) for tokens in result.tokens)
        num_empty += result.num_empty
        progress.at(done_bytes / num_bytes, f"{num_tokens:,} tokens")
    shards += _close(streams)
    buffer = io.BytesIO()
    np.save(buffer, unigram_counts)
    storage.write_bytes(storage.join(uri, "unigram_counts.npy"), buffer.getvalue())
    totals: Counter[str] = Counter()
    source_tokens: Counter[int] = Counter()
    for shard in shards:
        totals[f"{shard.split}_tokens"] += shard.num_tokens
        totals[f"{shard.split}_documents"] += shard.num_documents
        source_tokens[shard.source] += shard.num_tokens if shard.split == "train" else 0
    for name in SPLITS:
        if not totals[f"{name}_tokens"]:
            raise CorpusError(f"the tokenizer finds no token in the {name} documents; check its rules and the sources")
    corpus = PreparedCorpus(
        uri=uri,
        digest=digest,
        tokenizer_uri=tokenizer_uri,
        vocab_size=size,
        special=special,
        token_dtype=f"uint{dtype.itemsize * 8}",
        source_train_tokens=tuple(source_tokens[index] for index in range(texts.counts["sources"])),
        num_train_tokens=totals["train_tokens"],
        num_validation_tokens=totals["validation_tokens"],
        num_train_documents=totals["train_documents"],
        num_validation_documents=totals["validation_documents"],
        num_bytes=texts.num_bytes,
        counts={**texts.counts, "without_tokens": num_empty, "validation_forced": int(split.was_forced)},
        shards=tuple(shards),
        report=texts.report,
    )
    storage.write_json(storage.join(uri, MANIFEST_FILE), corpus.to_manifest())
    return corpus


def _tokenise_part(part: PartWork, tokenizer_uri: str, split: Split, dtype: str) -> Iterator[_Tokens]:
    """Runs in a Ray task."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # Ray counts on one thread a task
    encoder, sep = _encoder(tokenizer_uri, dtype)
    documents = list(read_part(part, split))
    collected: tuple[list[Any], list[Any]] = ([], [])
    starts: tuple[list[int], list[int]] = ([], [])
    sizes = [0, 0]
    num_empty = 0
    all_ids = encoder.encode([document.text for document in documents])
    for document, ids in zip(documents, all_ids, strict=True):
        if not len(ids):
            num_empty += 1
            continue
        side = int(document.is_held_out)
        starts[side].append(sizes[side])
        collected[side].extend((ids, sep))
        sizes[side] += len(ids) + 1
    train, held_out = (np.concatenate(arrays) if arrays else np.empty(0, dtype) for arrays in collected)
    yield _Tokens(
        part.number, (train, held_out), (np.array(starts[0], np.int64), np.array(starts[1], np.int64)), num_empty
    )


@functools.lru_cache(maxsize=1)
def _encoder(tokenizer_uri: str, dtype: str) -> tuple[Encoder, np.ndarray[Any, Any]]:
    """One a process, so that words stay known from file to file; and [SEP] as an array."""
    tokenizer = load_tokenizer(tokenizer_uri)
    return Encoder(tokenizer, dtype), np.array([special_ids(tokenizer).sep], dtype)


class _ShardStream:
    """Cuts one source's tokens of one split into shards. Holds at most one shard in memory."""

    def __init__(self, uri: str, source: int, split: str, dtype: np.dtype[Any]) -> None:
        self._uri, self._source, self._split, self._dtype = uri, source, split, dtype
        self._tokens: list[np.ndarray[Any, Any]] = []
        self._starts: list[np.ndarray[Any, Any]] = []
        self._size = 0
        self.shards: list[Shard] = []

    def add(self, tokens: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]) -> None:
        """Append tokens, with the positions in them at which documents start."""
        while self._size + len(tokens) >= SHARD_TOKENS:
            room = SHARD_TOKENS - self._size
            inside = int(np.searchsorted(starts, room))
            self._append(tokens[:room], starts[:inside])
            self.cut()
            tokens, starts = tokens[room:], starts[inside:] - room
        self._append(tokens, starts)

    def _append(self, tokens: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]) -> None:
        self._tokens.append(tokens)
        self._starts.append(starts + self._size)
        self._size += len(tokens)

    def cut(self) -> None:
        """Write what is held as a shard."""
        if not self._size:
            return
        name = f"source-{self._source:03d}/{self._split}-{len(self.shards):05d}"
        data = np.concatenate(self._tokens).astype(self._dtype, copy=False).tobytes()
        starts = np.concatenate(self._starts).astype("<i8")
        storage.write_bytes(storage.join(self._uri, f"{name}.bin"), data)
        storage.write_bytes(storage.join(self._uri, f"{name}.docs"), starts.tobytes())
        self.shards.append(
            Shard(
                source=self._source,
                split=self._split,
                name=name,
                num_tokens=self._size,
                num_documents=len(starts),
                size_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                docs_sha256=hashlib.sha256(starts.tobytes()).hexdigest(),
            )
        )
        self._tokens, self._starts, self._size = [], [], 0


def _close(streams: dict[str, _ShardStream]) -> list[Shard]:
    for stream in streams.values():
        stream.cut()
    return [shard for stream in streams.values() for shard in stream.shards]
