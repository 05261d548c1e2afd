"""From rows of tokens to masked batches on a worker's device, for training and for held-out figures."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from electra_core.batches import MaskedBatch, SpecialTokens, TokenBatch
from electra_core.masking import apply_mask
from electra_core.randomness import Draws
from electra_core.segments import split_rows
from pipelines.rows.loader import ValidationRows
from pipelines.training.resident import ResidentTokens, fits
from pipelines.training.task import TrainingTask, training_rows
from pipelines.training.workers import Worker


class Masker:
    """Full rows of tokens, masked as a task's spec and vocabulary have it.

    Args:
        task: whose spec and vocabulary.
        worker: tells the device.
        two_segment_fraction: of the rows that are parted in two.

    Raises:
        CorpusError: whole words are asked for, and the vocabulary has no continuations.
    """

    def __init__(self, task: TrainingTask, worker: Worker, two_segment_fraction: float = 0.0) -> None:
        self._masking, self._two_segment_fraction = task.spec.masking, two_segment_fraction
        self._special, self._vocab_size = SpecialTokens(*task.corpus.special), task.corpus.vocab_size
        self._is_continuation = task.is_continuation(worker)

    def __call__(self, input_ids: Tensor, draws: Draws) -> MaskedBatch:
        """Mask int64[B, L]."""
        batch = TokenBatch(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids, dtype=torch.bool),
            rows=draws.rows,
            is_packed=True,  # rows are cut from the stream full
        )
        if self._two_segment_fraction:
            batch = split_rows(batch, self._two_segment_fraction, self._special, draws)
        return apply_mask(
            batch,
            self._masking,
            self._special,
            draws,
            vocab_size=self._vocab_size,
            is_continuation=self._is_continuation,
        )


class Batches:
    """This worker's rows of any step, masked, on its device."""

    def __init__(self, task: TrainingTask, worker: Worker, is_resident: bool | None = None) -> None:
        """Open the corpus.

        Args:
            task: whose rows.
            worker: whose share of them, and where they go.
            is_resident: whether the corpus goes to the device as a whole; None decides by the device and its room.

        Raises:
            CorpusError: the corpus does not suit the spec.
            StorageError: a shard is absent or incomplete.
        """
        self._training, self._worker = task.spec.training, worker
        masker = Masker(task, worker, task.spec.training.two_segment_fraction)
        self._rows, self._mask = training_rows(task), worker.compiled(masker.__call__)
        self._resident: ResidentTokens | None = None
        if fits(self._rows.streams, worker.device) if is_resident is None else is_resident:
            self._resident = ResidentTokens(self._rows.streams, task.corpus.special, worker.device)
        self._global_rows: dict[int, Tensor] = {}

    def at(self, step: int) -> tuple[MaskedBatch, Draws]:
        """The batch of a step and its random numbers: int64[B, L] where B is this worker's share of the global batch.

        On a GPU the step's number is a tensor, so that nothing compiled is made anew for each step.
        """
        device, share = self._worker.device, self._worker.share(self._training.stage_at(step).global_batch_size)
        positions = np.arange(share.start, share.stop)
        if len(share) not in self._global_rows:  # once per size of batch: on a GPU the copy would wait
            self._global_rows[len(share)] = torch.from_numpy(positions).to(device)
        number = torch.full((), step, device=device) if self._worker.compile_backend else step
        draws = Draws(self._training.seed, number, self._global_rows[len(share)])
        return self._mask(self._ids(step, positions), draws), draws

    def _ids(self, step: int, positions: npt.NDArray[np.int64]) -> Tensor:
        device = self._worker.device
        if self._resident is not None:
            return self._resident.rows(*self._rows.locate(step, positions))
        ids = torch.from_numpy(self._rows.rows(step, positions))
        if device.type == "cuda":
            ids = ids.pin_memory()  # from pageable memory the copy would wait for the steps before it
        return ids.to(device, non_blocking=True)


class HeldOutBatches:
    """Held-out rows, masked at the same positions every time, and the random numbers that go with them. All have one
    segment, whatever training reads, so that figures of jobs may be compared.
    """

    def __init__(self, rows: ValidationRows, task: TrainingTask, worker: Worker) -> None:
        self._rows, self._mask = rows, Masker(task, worker)
        self._seed, self._device = task.spec.evaluation.seed, worker.device

    def of(self, indices: npt.NDArray[np.int64]) -> tuple[MaskedBatch, Draws]:
        """The rows of int64[B] indices in [0, num_rows)."""
        ids = torch.from_numpy(self._rows.rows(indices)).to(self._device)
        draws = Draws(self._seed, 0, torch.from_numpy(indices).to(self._device))
        return self._mask(ids, draws), draws
