"""Rows: a pure function of step and position, a permutation of every pass, weighted as the spec says."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import storage
from pipelines.errors import CorpusError, StorageError
from pipelines.rows.loader import TrainingRows, ValidationRows, read_continuations, read_unigram_counts
from pipelines.rows.permutation import mix, permute
from pipelines.storage.artifacts import PreparedCorpus, Shard, SpecialTokenIds
from pipelines.tokenizer import SPECIAL_TOKENS, bert_tokenizer, save_tokenizer

SPECIAL = SpecialTokenIds(0, 1, 2, 3, 4)
LENGTH = 10
WIDTH = LENGTH - 2
FIRST_ID = 100


def build_corpus(uri: str, *train: int, validation: int = 100) -> PreparedCorpus:
    """A corpus whose tokens count up from 100 through all sources, in shards of 50 tokens; so a row shows its place."""
    shards: list[Shard] = []
    first = FIRST_ID
    plan = [(index, "train", size) for index, size in enumerate(train)] + [(0, "validation", validation)]
    for source, split, size in plan:
        for number, start in enumerate(range(0, size, 50)):
            tokens = np.arange(first + start, first + min(start + 50, size), dtype="<u4")
            name = f"source-{source:03d}/{split}-{number:05d}"
            storage.write_bytes(storage.join(uri, f"{name}.bin"), tokens.tobytes())
            digest = hashlib.sha256(tokens.tobytes()).hexdigest()
            shards.append(Shard(source, split, name, len(tokens), 1, tokens.nbytes, digest, ""))
        first += size
    return PreparedCorpus(
        uri=uri,
        digest="d",
        tokenizer_uri="/t",
        vocab_size=first,
        special=SPECIAL,
        token_dtype="uint32",
        source_train_tokens=train,
        num_train_tokens=sum(train),
        num_validation_tokens=validation,
        num_train_documents=1,
        num_validation_documents=1,
        num_bytes=1,
        counts={},
        shards=tuple(shards),
    )


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[..., PreparedCorpus]:
    return partial(build_corpus, str(tmp_path / "corpora" / "d"))


@pytest.fixture(scope="session")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return build_corpus(str(tmp_path_factory.mktemp("rows")), 487, 123)


def a_pass(rows: TrainingRows, number: int) -> np.ndarray[Any, Any]:
    """All rows of one pass, as one large batch."""
    return rows.rows(number, np.arange(rows.rows_per_pass), rows.rows_per_pass)


@given(size=st.integers(1, 3000), key=st.integers(0, 2**63))
def test_permute_is_a_permutation(size: int, key: int) -> None:
    places = permute(np.arange(size), size, mix(key))
    assert np.array_equal(np.sort(places), np.arange(size))


@pytest.mark.parametrize("size", [2**31 + 11, 2**40, 10**15])
def test_permute_handles_large_sizes(size: int) -> None:
    places = permute(np.arange(size - 1000, size), size, mix(7))
    assert places.min() >= 0
    assert places.max() < size
    assert len(np.unique(places)) == 1000
    assert places.std() > size / 10


def test_permute_spreads_neighbours() -> None:
    """Every value is about as likely at every place: chi-squared over keys within five standard deviations."""
    places = np.stack([permute(np.arange(10), 10, mix(key)) for key in range(2000)])
    seen = np.stack([np.bincount(column, minlength=10) for column in places.T])
    chi_squared = ((seen - 200) ** 2 / 200).sum()
    assert abs(chi_squared - 81) < 5 * np.sqrt(2 * 81)


def test_a_row_is_cut_from_the_stream(make_corpus: Callable[..., PreparedCorpus]) -> None:
    rows = a_pass(TrainingRows(make_corpus(487), (1.0,), LENGTH, seed=1), 0)
    assert (rows[:, 0] == SPECIAL.cls).all()
    assert (rows[:, -1] == SPECIAL.sep).all()
    steps = np.diff(rows[:, 1:-1], axis=1)
    assert set(np.unique(steps)) <= {1, 1 - 487}  # the stream is a ring: one row may cross its end
    assert (steps != 1).sum() <= 1
    assert rows.dtype == np.int64
    assert rows.shape == (487 // WIDTH, LENGTH)


@given(seed=st.integers(0, 2**31 - 1), number=st.integers(0, 5))
def test_a_pass_reads_no_token_twice(seed: int, number: int, two_sources: PreparedCorpus) -> None:
    tokens = a_pass(TrainingRows(two_sources, (1.0, 1.0), LENGTH, seed), number)[:, 1:-1].ravel()
    assert len(np.unique(tokens)) == len(tokens)
    assert len(tokens) > 487 + 123 - 2 * WIDTH


def test_passes_differ_in_order_and_in_cuts(make_corpus: Callable[..., PreparedCorpus]) -> None:
    rows = TrainingRows(make_corpus(4000), (1.0,), LENGTH, seed=1)
    first, second = a_pass(rows, 0), a_pass(rows, 1)
    assert not np.array_equal(first, second)
    offsets = {int((a_pass(rows, number)[0, 1] - FIRST_ID) % WIDTH) for number in range(20)}
    assert len(offsets) > 3


def test_seeds_give_other_orders(make_corpus: Callable[..., PreparedCorpus]) -> None:
    corpus = make_corpus(4000)
    one, other = (a_pass(TrainingRows(corpus, (1.0,), LENGTH, seed), 0) for seed in (1, 2))
    assert not np.array_equal(one, other)


@given(data=st.data(), workers=st.sampled_from([1, 2, 4, 8]), step=st.integers(0, 10**6))
def test_any_split_over_workers_gives_the_same_rows(
    data: st.DataObject, workers: int, step: int, two_sources: PreparedCorpus
) -> None:
    rows = TrainingRows(two_sources, (1.0, 0.7), LENGTH, seed=3)
    whole = rows.rows(step, np.arange(16), 16)
    order = data.draw(st.permutations(range(16)))
    shares = np.array(order).reshape(workers, -1)
    assert all(np.array_equal(rows.rows(step, share, 16), whole[share]) for share in shares)


def test_batch_size_does_not_change_the_order(make_corpus: Callable[..., PreparedCorpus]) -> None:
    rows = TrainingRows(make_corpus(4000), (1.0,), LENGTH, seed=3)
    small = np.concatenate([rows.rows(step, np.arange(4), 4) for step in range(8)])
    assert np.array_equal(small, rows.rows(0, np.arange(32), 32))


def sources_of(tokens: np.ndarray[Any, Any], first_size: int) -> Counter[int]:
    return Counter(int(token >= FIRST_ID + first_size) for token in tokens[:, 1])


@pytest.mark.parametrize(("weight", "expected"), [(0.5, 50), (1.0, 100), (2.0, 200), (1.5, 150)])
def test_weights_scale_a_source(make_corpus: Callable[..., PreparedCorpus], weight: float, expected: int) -> None:
    rows = TrainingRows(make_corpus(100 * WIDTH, 100 * WIDTH), (weight, 1.0), LENGTH, seed=1)
    assert sources_of(a_pass(rows, 0), 100 * WIDTH) == {0: expected, 1: 100}


def test_half_a_source_is_followed_by_its_other_half(make_corpus: Callable[..., PreparedCorpus]) -> None:
    rows = TrainingRows(make_corpus(100 * WIDTH), (0.5,), LENGTH, seed=1)
    seen = np.concatenate([a_pass(rows, 0), a_pass(rows, 1)])[:, 1:-1]
    assert len(np.unique(seen)) == 100 * WIDTH


def test_a_double_source_is_read_twice(make_corpus: Callable[..., PreparedCorpus]) -> None:
    seen = a_pass(TrainingRows(make_corpus(100 * WIDTH), (2.0,), LENGTH, seed=1), 0)[:, 1:-1]
    assert (np.unique(seen, return_counts=True)[1] == 2).all()


def test_too_few_tokens_are_told_with_numbers(make_corpus: Callable[..., PreparedCorpus]) -> None:
    with pytest.raises(CorpusError, match="takes 8 tokens of one source, and the largest has 7"):
        TrainingRows(make_corpus(7, 5), (1.0, 1.0), LENGTH, seed=1)
    with pytest.raises(CorpusError, match="takes 8 tokens, and the held-out documents have 5"):
        ValidationRows(make_corpus(100, validation=5), LENGTH, 10)


def test_a_source_without_a_row_is_passed_over(make_corpus: Callable[..., PreparedCorpus]) -> None:
    rows = TrainingRows(make_corpus(7, 80, 0), (1.0, 1.0, 1.0), LENGTH, seed=1)
    assert rows.rows_per_pass == 10


def test_a_single_row_is_enough(make_corpus: Callable[..., PreparedCorpus]) -> None:
    rows = TrainingRows(make_corpus(8), (1.0,), LENGTH, seed=1)
    assert np.array_equal(np.sort(rows.rows(5, [0, 1], 2)[:, 1:-1]), np.tile(np.arange(8) + FIRST_ID, (2, 1)))


def test_weights_must_fit(make_corpus: Callable[..., PreparedCorpus]) -> None:
    with pytest.raises(ValueError, match="one per source, got 2 and 1"):
        TrainingRows(make_corpus(80), (1.0, 1.0), LENGTH, seed=1)


def test_validation_rows_spread_over_the_held_out_text(make_corpus: Callable[..., PreparedCorpus]) -> None:
    corpus = make_corpus(80, validation=800)
    rows = ValidationRows(corpus, LENGTH, 10)
    firsts = rows.rows(np.arange(10))[:, 1] - FIRST_ID - 80
    assert rows.num_rows == 10
    assert firsts.tolist() == [WIDTH * 10 * index for index in range(10)]
    assert ValidationRows(corpus, LENGTH, 1000).num_rows == 100


def test_a_lost_or_short_shard_is_told(make_corpus: Callable[..., PreparedCorpus]) -> None:
    corpus = make_corpus(80)
    path = Path(corpus.uri, "source-000/train-00000.bin")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StorageError, match="must have 200 bytes, got 196"):
        TrainingRows(corpus, (1.0,), LENGTH, seed=1)
    path.unlink()
    with pytest.raises(StorageError, match="shard is gone"):
        TrainingRows(corpus, (1.0,), LENGTH, seed=1)


def test_remote_shards_give_the_same_rows(make_corpus: Callable[..., PreparedCorpus], bucket: str) -> None:
    local, remote = make_corpus(487), build_corpus(f"{bucket}/corpora/rows", 487)
    one, other = (a_pass(TrainingRows(corpus, (1.0,), LENGTH, 1), 0) for corpus in (local, remote))
    assert np.array_equal(one, other)


def test_unigram_counts_can_be_changed(make_corpus: Callable[..., PreparedCorpus], tmp_path: Path) -> None:
    corpus = make_corpus(8)
    np.save(tmp_path / "corpora/d/unigram_counts.npy", np.arange(5))
    counts = read_unigram_counts(corpus)
    counts[0] = 1
    assert counts.tolist() == [1, 1, 2, 3, 4]


@pytest.mark.parametrize("last", ["##ing", "ing"])
def test_continuations_come_from_the_tokenizer_of_the_corpus(tmp_path: Path, last: str) -> None:
    words = [*SPECIAL_TOKENS, "go", last]
    save_tokenizer(bert_tokenizer({word: index for index, word in enumerate(words)}, True, None), str(tmp_path / "t"))
    corpus = replace(build_corpus(str(tmp_path / "c"), 100), tokenizer_uri=str(tmp_path / "t"))
    if last == "ing":
        with pytest.raises(CorpusError, match="whole_word needs a vocabulary with ## continuations"):
            read_continuations(corpus)
    else:
        assert read_continuations(corpus).tolist() == [False] * 6 + [True]
