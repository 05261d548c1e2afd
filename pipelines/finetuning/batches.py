"""Batches of labelled rows: which examples each step sees, and their tensors.

The order is a pure function of (seed, epoch), so a run goes on from any step as if it had never stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from electra_core.batches import TokenBatch
from pipelines.tasks.features import NO_LABEL, Features

SORTED_BATCHES = 64
"""Batches at most within which rows are sorted by length: with more there is hardly less padding."""
LEAST_RUNS = 6
"""Runs at least that an epoch is sorted in, each by itself. One run alone would give the same batches in every epoch,
but for ties. Of texts of log-normal length (σ 0.6) in batches of 32, a mate of one epoch is a mate of the next one this
often, at this share of padding:

| examples | random order | 1 run | 4 runs | 6 runs | 8 runs |
|---|---|---|---|---|---|
| 200 | 16 % at 61 % | 94 % at 23 % | 21 % at 50 % | 16 % at 58 % | 16 % at 61 % |
| 635 | 5 % at 66 % | 71 % at 19 % | 18 % at 38 % | 12 % at 45 % | 10 % at 50 % |
| 2490 | 1 % at 67 % | 29 % at 15 % | 15 % at 20 % | 11 % at 23 % | 8 % at 27 % |
"""
LENGTH_MULTIPLE = 8
"""Batches are as long as a multiple of this. Memory that one length has left is of no use to the next: with a hundred
lengths a process of three layers grew to 4 GB, and odd lengths compute no faster."""


@dataclass(frozen=True)
class Batch:
    """Rows of equal length, and what they should give."""

    tokens: TokenBatch
    labels: Tensor
    """As `electra_core.finetuning.losses.task_loss` takes them."""
    num_examples: int


class BatchOrder:
    """Which examples make up each step.

    Args:
        lengths: of each example, in tokens; the longest of its rows.
        batch_size: examples a step; the last of an epoch may have fewer.
        seed: of the order.
    """

    def __init__(self, lengths: npt.NDArray[np.int64], batch_size: int, seed: int) -> None:
        assert len(lengths), "there must be an example to learn from"
        self._lengths = lengths
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = -1
        self._batches: list[npt.NDArray[np.int64]] = []

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass over the examples."""
        return -(-len(self._lengths) // self._batch_size)

    def at(self, step: int) -> npt.NDArray[np.int64]:
        """Examples of a step, counted from 0."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._batches, self._epoch = self._shuffled(epoch), epoch
        return self._batches[place]

    def _shuffled(self, epoch: int) -> list[npt.NDArray[np.int64]]:
        """Examples of like length together, the batches in any order."""
        rng = np.random.Generator(np.random.Philox(key=[self._seed, epoch]))
        order = rng.permutation(len(self._lengths))
        num_batches = self.steps_per_epoch
        # Any batch may be the short one: were it the last, it would have the longest texts of the last run each time.
        sizes = np.full(num_batches, self._batch_size)
        sizes[rng.integers(num_batches)] -= sizes.sum() - len(order)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        num_runs = min(num_batches, max(LEAST_RUNS, -(-num_batches // SORTED_BATCHES)))
        batches: list[npt.NDArray[np.int64]] = []
        for places in np.array_split(np.arange(num_batches), num_runs):
            first, last = places[0], places[-1] + 1
            some = order[starts[first] : starts[last]]
            some = some[np.argsort(self._lengths[some], kind="stable")]
            batches += np.split(some, starts[first + 1 : last] - starts[first])
        return [batches[index] for index in rng.permutation(num_batches)]


class RowCutter:
    """Cuts batches out of a split's features.

    Args:
        features: of the split.
        num_choices: rows of each example of a multiple choice; 1 elsewhere.
        pad_id: id of [PAD].
        device: where the tensors go.
    """

    def __init__(self, features: Features, num_choices: int, pad_id: int, device: torch.device) -> None:
        self._features = features
        self._num_choices = num_choices
        self._pad_id = pad_id
        self._device = device
        self._starts = features.starts[:-1]
        self._lengths = features.lengths
        self._longest = int(self._lengths.max(initial=0))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """int64[examples]: of a multiple choice the longest of its rows. A question's windows are examples here."""
        longest: npt.NDArray[np.int64] = self._lengths.reshape(-1, self._num_choices).max(axis=1)
        return longest

    def padded(self, length: int) -> int:
        """Length of a batch whose longest row has so many tokens; that of the split's longest at most."""
        return min(-(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, self._longest)

    def cut(self, examples: npt.NDArray[np.int64]) -> Batch:
        """The rows of some examples, padded to the longest of them."""
        features = self._features
        choices = np.arange(self._num_choices)
        rows = (examples[:, None] * self._num_choices + choices).reshape(-1)
        lengths = self._lengths[rows]
        columns = np.arange(self.padded(int(lengths.max())))
        is_real = columns < lengths[:, None]
        places = np.where(is_real, self._starts[rows][:, None] + columns, 0)
        input_ids = np.where(is_real, features.input_ids[places], self._pad_id)
        is_second = is_real & (columns >= features.num_first[rows][:, None])
        tokens = TokenBatch(
            input_ids=self._tensor(input_ids.astype(np.int64)),
            attention_mask=self._tensor(is_real),
            rows=torch.arange(len(rows), device=self._device),
            token_type_ids=self._tensor(is_second.astype(np.int64)) if is_second.any() else None,
            is_packed=bool(is_real.all()),
        )
        return Batch(tokens, self._tensor(self._labels(rows, places, is_real)), len(examples))

    def _labels(self, rows: npt.NDArray[np.int64], places: npt.NDArray[np.int64], is_real: npt.NDArray[Any]) -> Any:
        labels = self._features.labels
        if self._features.first_words is not None:
            return np.where(is_real, labels[places], NO_LABEL)
        return labels[rows[:: self._num_choices]]

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
