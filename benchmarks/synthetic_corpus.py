"""A tokenised corpus of any size, written in seconds: what the loader reads, without a text behind it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from pipelines.storage.artifacts import PreparedCorpus, Shard, SpecialTokenIds

_SHARD_TOKENS = 4_000_000
_VALIDATION_TOKENS = 200_000
_FIRST_WORD = 5


def write_token_corpus(folder: Path, num_tokens: int, vocab_size: int) -> PreparedCorpus:
    """Ids drawn as words are, the logarithm of their rank uniform. Long corpora repeat one run of them."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    uniform = rng.random(min(num_tokens, _SHARD_TOKENS))
    block = (_FIRST_WORD - 1 + (vocab_size - _FIRST_WORD + 1) ** uniform).astype("<u2")
    shards = [_write(folder, "validation", 0, block[:_VALIDATION_TOKENS])]
    unigram_counts = np.zeros(vocab_size, np.int64)
    for start in range(0, num_tokens, _SHARD_TOKENS):
        part = block[: min(_SHARD_TOKENS, num_tokens - start)]
        shards.append(_write(folder, "train", start // _SHARD_TOKENS, part))
        unigram_counts += np.bincount(part, minlength=vocab_size)
    np.save(folder / "unigram_counts.npy", unigram_counts)
    return PreparedCorpus(
        uri=str(folder),
        digest=f"synthetic-{num_tokens}",
        tokenizer_uri=str(folder),
        vocab_size=vocab_size,
        special=SpecialTokenIds(0, 1, 2, 3, 4),
        token_dtype="uint16",
        source_train_tokens=(num_tokens,),
        num_train_tokens=num_tokens,
        num_validation_tokens=shards[0].num_tokens,
        num_train_documents=1,
        num_validation_documents=1,
        num_bytes=0,
        counts={},
        shards=tuple(shards),
    )


def _write(folder: Path, split: str, number: int, tokens: np.ndarray) -> Shard:
    name = f"{split}-{number}"
    (folder / f"{name}.bin").write_bytes(tokens.tobytes())
    digest = hashlib.sha256(tokens.tobytes()).hexdigest()
    return Shard(0, split, name, len(tokens), 1, tokens.nbytes, digest, "")
