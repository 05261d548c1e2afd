"""What the loop reads of itself at log steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from electra_core.metrics import figures
from electra_core.objectives import ObjectiveSums
from pipelines.errors import NonFiniteLossError
from pipelines.specs.plan import flops_until
from pipelines.training.task import TrainingTask
from pipelines.training.workers import Worker


class Window:
    """Losses and speed between two readings, kept on the device so that no step waits for the host."""

    def __init__(self, worker: Worker, task: TrainingTask, step: int, peak_flops_per_second: float) -> None:
        self._worker = worker
        self._task = task
        self._peak = peak_flops_per_second
        self._sums: dict[str, Tensor] = {}
        self._grad_norm = torch.zeros((), device=worker.device)
        self._first_bad_step = torch.full((), -1, dtype=torch.int64, device=worker.device)
        self._read_step = step
        self._clock = time.perf_counter()

    def add(self, sums: ObjectiveSums) -> None:
        """Add one micro-batch's sums."""
        for name, value in sums.detached().items():  # a new stage of the objective brings new names
            self._sums[name] = value + self._sums.get(name, 0.0)

    def watch(self, step: int, loss: Tensor, grad_norm: Tensor) -> None:
        """Remember the gradient's norm, and the first step whose loss or gradient was not finite."""
        self._grad_norm = grad_norm
        is_bad = ~(torch.isfinite(loss.detach()) & torch.isfinite(grad_norm))
        is_first_bad = is_bad & (self._first_bad_step < 0)
        self._first_bad_step = torch.where(is_first_bad, step, self._first_bad_step)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out of the speed what is not training: evaluation, saving."""
        start = time.perf_counter()
        yield
        self._clock += time.perf_counter() - start

    def read(self, step: int) -> dict[str, float]:
        """Sum over the workers, read, and start anew.

        Raises:
            NonFiniteLossError: some loss since the last reading was not finite, on any worker.
        """
        sums = self._worker.sum(torch.stack([*self._sums.values()])).tolist()
        self.raise_if_not_finite()
        seconds = max(time.perf_counter() - self._clock, 1e-9)
        # Steps differ where curriculum or objective has stages, so both are counted from the first and subtracted.
        (tokens, flops), (tokens_before, flops_before) = self._work_until(step), self._work_until(self._read_step)
        readings = figures(dict(zip(self._sums, sums, strict=True)))
        readings |= {
            "gradient_norm": float(self._grad_norm),
            "tokens": float(tokens),
            "tokens_per_second": (tokens - tokens_before) / seconds,
            "flops": flops,
            "mfu": (flops - flops_before) / seconds / self._peak,
        }
        self._sums, self._read_step, self._clock = {}, step, time.perf_counter()
        return readings

    def _work_until(self, step: int) -> tuple[int, float]:
        """Tokens and FLOPs of the first `step` steps."""
        spec = self._task.spec
        return spec.training.tokens_until(step), flops_until(spec, self._task.corpus.vocab_size, step)

    def raise_if_not_finite(self) -> None:
        """Raise on every worker if any of them met a loss or gradient that was not finite."""
        bad_step = self._first_bad_step.clone()
        if self._worker.world_size > 1:
            torch.distributed.all_reduce(bad_step, op=torch.distributed.ReduceOp.MAX)
        if bad_step >= 0:
            raise NonFiniteLossError(int(bad_step))
