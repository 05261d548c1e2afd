"""Training rows of a curriculum: one order of the data through all stages.

The data is one endless sequence of *long rows*, rows of the longest stage's length, as `TrainingRows` orders them.
Every stage reads on where the stage before stopped. A stage of shorter rows cuts each long row into as many pieces as
fit (four of 128 from one of 512) and leaves the few tokens that remain; it goes over its long rows once per piece, so
that neighbours do not meet in one batch. What that gives:

- no token is read twice before the pass over the corpus is through, over the ends of stages too;
- a stage that changes the batch size alone changes nothing in the order;
- without a curriculum the rows are those of `TrainingRows`;
- a row depends on the spec, the step and the position in the global batch alone: nothing is counted while training.

A source must have one long row, even if the first stages read shorter ones.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipelines.rows.loader import Int64s, TrainingRows
from pipelines.rows.token_stream import TokenStream
from pipelines.specs.curriculum import Stage
from pipelines.storage.artifacts import PreparedCorpus


class StagedRows:
    """The endless training data as the stages of a curriculum read it.

    Args:
        corpus: what to read.
        weights: one per source: times it is read per pass.
        stages: from the first step to the last.
        seed: decides the order.

    Raises:
        CorpusError: there is not one row of the longest stage's length.
        ValueError: the weights do not fit the corpus.
        StorageError: a shard is absent or incomplete.
    """

    def __init__(self, corpus: PreparedCorpus, weights: tuple[float, ...], stages: Sequence[Stage], seed: int) -> None:
        self._rows = TrainingRows(corpus, weights, max(stage.sequence_length for stage in stages), seed)
        self._firsts = [0]
        for stage in stages:
            self._firsts.append(self._firsts[-1] + self._num_long_rows(stage))
        self._stages = tuple(stages)
        self._ends = [stage.end_step for stage in stages]

    def rows(self, step: int, positions: npt.ArrayLike) -> Int64s:
        """Rows of a step's global batch.

        Args:
            step: optimizer step, from 0 and before the end of the last stage.
            positions: int[n], each in [0, global_batch_size of the stage): which rows of the batch.

        Returns:
            int64[n, sequence_length of the stage]; row i depends on the step and positions[i] alone.
        """
        return self._rows.pieces(*self._pieces(step, positions))

    def locate(self, step: int, positions: npt.ArrayLike) -> tuple[Int64s, Int64s, int]:
        """Where the tokens of `rows` stand: int64[n] sources, int64[n] first tokens in them, tokens of a row."""
        index, piece, sequence_length = self._pieces(step, positions)
        return *self._rows.locate(index, piece, sequence_length), sequence_length

    @property
    def streams(self) -> Sequence[TokenStream]:
        """The training tokens of each source."""
        return self._rows.streams

    def _pieces(self, step: int, positions: npt.ArrayLike) -> tuple[Int64s, Int64s, int]:
        """Long row and piece of each row, and the stage's sequence length."""
        number = bisect.bisect_right(self._ends, step)
        stage = self._stages[number]
        row_of_stage = (step - stage.first_step) * stage.global_batch_size + np.asarray(positions, np.int64)
        num_pieces = self._rows.num_pieces(stage.sequence_length)
        first, end = self._firsts[number], self._firsts[number + 1]
        if num_pieces == 1:
            index, piece = first + row_of_stage, np.zeros_like(row_of_stage)
        else:
            index, piece = _sweep(row_of_stage, num_pieces, first, end, self._rows.rows_per_pass)
        return index, piece, stage.sequence_length

    def _num_long_rows(self, stage: Stage) -> int:
        num_rows = stage.steps_until(stage.end_step) * stage.global_batch_size
        return -(-num_rows // self._rows.num_pieces(stage.sequence_length))


def _sweep(row_of_stage: Int64s, num_pieces: int, first: int, end: int, rows_per_pass: int) -> tuple[Int64s, Int64s]:
    """Long row and piece of each row of a stage that reads long rows [first, end).

    Within one pass over the corpus the stage's long rows form a block; a block is gone over `num_pieces` times before
    the next begins. The first and the last block may be part of a pass.
    """
    in_first_block = min(end, (first // rows_per_pass + 1) * rows_per_pass) - first
    # Counted as if the first block were whole, so that every block starts at a multiple of one number.
    missing = (rows_per_pass - in_first_block) * num_pieces
    is_in_first = row_of_stage < in_first_block * num_pieces
    block = np.where(is_in_first, 0, (row_of_stage + missing) // (rows_per_pass * num_pieces))
    in_block = np.where(is_in_first, row_of_stage, (row_of_stage + missing) % (rows_per_pass * num_pieces))
    block_first = np.where(is_in_first, first, first + in_first_block + (block - 1) * rows_per_pass)
    block_length = np.where(is_in_first, in_first_block, np.minimum(rows_per_pass, end - block_first))
    return block_first + in_block % block_length, in_block // block_length
