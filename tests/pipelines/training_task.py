"""A small corpus written by hand and a training task on it, for tests of the loop without Ray."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from pipelines import storage
from pipelines.specs.parsing import resolve_spec
from pipelines.storage.artifacts import PreparedCorpus, Shard, SpecialTokenIds
from pipelines.tokenizer import SPECIAL_TOKENS, bert_tokenizer, save_tokenizer
from pipelines.training.task import TrainingTask

VOCAB_SIZE = 300


def write_corpus(folder: Path, num_train: int = 20_000, num_validation: int = 2_000) -> PreparedCorpus:
    """Tokens of a noisy walk over the vocabulary, so that neighbours tell something about each other."""
    rng = np.random.default_rng(0)
    tokens = (np.cumsum(rng.integers(1, 4, num_train + num_validation)) % (VOCAB_SIZE - 5) + 5).astype("<u2")
    tokens[::37] = 3  # [SEP]: documents end
    shards = []
    for split, part in (("train", tokens[:num_train]), ("validation", tokens[num_train:])):
        _write_once(folder / f"{split}-0.bin", part.tobytes())
        (folder / f"{split}-0.docs").write_bytes(np.zeros(1, "<i8").tobytes())
        digest = hashlib.sha256(part.tobytes()).hexdigest()
        shards.append(Shard(0, split, f"{split}-0", len(part), 1, part.nbytes, digest, ""))
    words = [*SPECIAL_TOKENS, *(f"{'##' * (i % 4 == 0)}w{i}" for i in range(len(SPECIAL_TOKENS), VOCAB_SIZE))]
    save_tokenizer(bert_tokenizer({word: i for i, word in enumerate(words)}, True, None), str(folder))
    np.save(folder / "unigram_counts.npy", np.bincount(tokens[:num_train], minlength=VOCAB_SIZE).astype(np.int64))
    return PreparedCorpus(
        uri=str(folder),
        digest="corpus",
        tokenizer_uri=str(folder),
        vocab_size=VOCAB_SIZE,
        special=SpecialTokenIds(0, 1, 2, 3, 4),
        token_dtype="uint16",
        source_train_tokens=(num_train,),
        num_train_tokens=num_train,
        num_validation_tokens=num_validation,
        num_train_documents=1,
        num_validation_documents=1,
        num_bytes=0,
        counts={},
        shards=tuple(shards),
    )


def _write_once(path: Path, content: bytes) -> None:
    """Workers make the same corpus side by side, and another may have mapped the file already."""
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.replace(path)


def make_task(folder: Path, *overrides: str, name: str = "job") -> TrainingTask:
    """A task of 20 steps on the corpus in `folder`, which is written where it is absent."""
    corpus_folder = folder / "corpus"
    corpus_folder.mkdir(exist_ok=True)
    small = [
        "model.hidden_size=32",
        "model.embedding_size=32",
        "model.intermediate_size=64",
        "model.num_attention_heads=2",
        "model.generator_size_ratio=0.5",
        "model.max_position_embeddings=32",
        "model.hidden_dropout_prob=0.1",
        "model.attention_probs_dropout_prob=0.1",
        "optimizer.name=electra_adam",
        "optimizer.warmup_steps=5",
        "training.num_train_steps=20",
        "training.sequence_length=32",
        "training.log_interval_steps=1",
        "training.checkpoint_interval_steps=5",
        "evaluation.interval_steps=1000",
        "evaluation.max_rows=16",
        "compute.num_workers=1",
    ]
    spec = resolve_spec({"kind": "pretrain", "preset": "tiny"}, [*small, *overrides])
    return TrainingTask(spec, write_corpus(corpus_folder), storage.join(str(folder), name, "checkpoints"))
