"""Rows of a curriculum: nothing read twice, one order through all stages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_loader import FIRST_ID, build_corpus

from pipelines.errors import CorpusError
from pipelines.rows.loader import TrainingRows
from pipelines.rows.staged import StagedRows
from pipelines.specs.curriculum import Stage
from pipelines.storage.artifacts import PreparedCorpus

LONG = 18  # 16 tokens of text; rows of 6 have 4, so four of them fit, rows of 8 have 6, so two fit
NUM_TOKENS = 64 * 16 + 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return build_corpus(str(tmp_path_factory.mktemp("staged")), NUM_TOKENS)


def stages(*shapes: tuple[int, int, int]) -> tuple[Stage, ...]:
    """From (number of steps, sequence length, batch size)."""
    result, first = [], 0
    for steps, length, batch in shapes:
        result.append(Stage(first, first + steps, length, batch))
        first += steps
    return tuple(result)


def all_rows(corpus: PreparedCorpus, shapes: tuple[Stage, ...], seed: int = 1) -> list[np.ndarray]:
    rows = StagedRows(corpus, (1.0,), shapes, seed)
    return [
        rows.rows(step, np.arange(stage.global_batch_size))
        for stage in shapes
        for step in range(stage.first_step, stage.end_step)
    ]


def tokens_of(batches: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([batch[:, 1:-1].ravel() for batch in batches])


def test_without_a_curriculum_the_rows_are_those_of_training_rows(corpus):
    plain = TrainingRows(corpus, (1.0,), LONG, 1)
    for step, batch in enumerate(all_rows(corpus, stages((30, LONG, 4)))):
        assert np.array_equal(batch, plain.rows(step, np.arange(4), 4))


def test_a_batch_ramp_changes_nothing_in_the_order(corpus):
    ramped = np.concatenate(all_rows(corpus, stages((7, LONG, 2), (5, LONG, 6), (10, LONG, 16))))
    assert np.array_equal(ramped, np.concatenate(all_rows(corpus, stages((len(ramped), LONG, 1)))))


def test_every_stage_has_rows_of_its_shape(corpus):
    shapes = stages((3, 6, 5), (2, 8, 4), (2, LONG, 2))
    assert [batch.shape for batch in all_rows(corpus, shapes)] == [(5, 6)] * 3 + [(4, 8)] * 2 + [(2, LONG)] * 2


@given(
    steps=st.tuples(st.integers(1, 12), st.integers(1, 8), st.integers(1, 8)),
    batch=st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 4)),
    seed=st.integers(0, 2**31 - 1),
)
def test_a_pass_reads_no_token_twice_through_all_stages(steps, batch, seed, corpus):
    shapes = stages((steps[0], 6, batch[0]), (steps[1], 8, batch[1]), (steps[2], LONG, batch[2]))
    used = -(-steps[0] * batch[0] // 4) + -(-steps[1] * batch[1] // 2) + steps[2] * batch[2]
    tokens = tokens_of(all_rows(corpus, shapes, seed))
    times = np.unique(tokens, return_counts=True)[1]
    # 64 long rows are a pass; what is read in the second may have been read in the first.
    assert times.max() <= -(-used // 64)


def test_a_stage_of_whole_passes_reads_every_piece_once_a_pass(corpus):
    """Two passes and a half of short rows, begun in the middle of a pass."""
    shapes = stages((1, LONG, 32), (1, 6, 4 * (32 + 64 + 64)), (1, LONG, 1))
    first, short, _ = all_rows(corpus, shapes)
    half_pass, pass_1, pass_2 = np.split(short, [4 * 32, 4 * 96])
    assert len(np.unique(tokens_of([first, half_pass]))) == 64 * 16
    for whole in (pass_1, pass_2):
        assert len(np.unique(tokens_of([whole]))) == 64 * 16


def test_neighbours_do_not_meet_in_a_batch(corpus):
    """128 short rows are 32 long ones in four pieces each; the 8 rows of a batch come from 8 long rows."""
    *batches, last = all_rows(corpus, stages((16, 6, 8), (1, LONG, 1)))
    cut = (last[0, 1] - FIRST_ID) % 16  # where this pass cuts the text into long rows
    long_rows = [(batch[:, 1] - FIRST_ID - cut) % NUM_TOKENS // 16 for batch in batches]
    assert all(len(np.unique(rows)) == 8 for rows in long_rows)
    assert len(np.unique(long_rows)) == 32


def test_any_share_gives_the_rows_of_the_whole(corpus):
    rows = StagedRows(corpus, (1.0,), stages((5, 6, 8), (5, LONG, 4)), seed=3)
    for step, size in ((0, 8), (4, 8), (5, 4), (9, 4)):
        whole = rows.rows(step, np.arange(size))
        halves = [rows.rows(step, half) for half in np.split(np.arange(size), 2)]
        assert np.array_equal(np.concatenate(halves), whole)


def test_a_corpus_without_a_long_row_is_refused_from_the_start(tmp_path: Path):
    small = build_corpus(str(tmp_path / "corpora" / "d"), 10)
    with pytest.raises(CorpusError, match="takes 16 tokens of one source, and the largest has 10"):
        StagedRows(small, (1.0,), stages((5, 6, 1), (1, LONG, 1)), seed=1)
