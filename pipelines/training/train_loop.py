"""The training loop: what every data-parallel worker runs, from restored weights to the last checkpoint.

Every batch, mask, dropout draw and sample is a pure function of (seed, step, row of the global batch). The loop
therefore keeps no state but the step, the weights and Adam's moments: it resumes exactly, and under another number
of workers it sees the same batches.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from electra_core.accounting import training_flops_until
from electra_core.batches import MaskedBatch, SpecialTokens, TokenBatch
from electra_core.masking import apply_mask
from electra_core.metrics import figures
from electra_core.noise import noise_weights
from electra_core.objectives import ObjectiveSums
from electra_core.optimizer import ElectraAdam, clip_by_global_norm, parameter_groups
from electra_core.pretraining import ElectraForPretraining
from electra_core.randomness import Draws
from electra_core.schedule import learning_rate
from pipelines.errors import CheckpointError, JobCancelled, NonFiniteLossError
from pipelines.rows.loader import TrainingRows, ValidationRows, read_unigram_counts
from pipelines.specs.pretrain import PretrainSpec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.training.checkpoint import restore_checkpoint, save_checkpoint
from pipelines.training.evaluate import evaluate
from pipelines.training.rate import matrix_product_flops_per_second
from pipelines.training.telemetry import Telemetry
from pipelines.training.workers import Worker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingTask:
    """What one training run needs to know; the same on every worker."""

    spec: PretrainSpec
    corpus: PreparedCorpus
    checkpoints_uri: str

    @property
    def identity(self) -> str:
        """Digest of what decides the weights. The number of workers, the intervals and the record are left out:
        a job may be resumed on another cluster, and saved or evaluated more often.
        """
        spec = self.spec
        weights = [source.weight for source in spec.corpus.sources]
        training = spec.training.model_dump(
            mode="json", include={"num_train_steps", "global_batch_size", "sequence_length", "precision", "seed"}
        )
        sections = (spec.model, spec.objective, spec.masking, spec.optimizer)
        decisive = [self.corpus.digest, weights, training, *(section.model_dump(mode="json") for section in sections)]
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def build_networks(spec: PretrainSpec, corpus: PreparedCorpus) -> ElectraForPretraining:
    """The objective's networks with the initial weights the seed gives, in its first stage."""
    rng = torch.Generator().manual_seed(spec.training.seed)
    noise = None
    if spec.objective.generator != "transformer":
        counts = torch.from_numpy(read_unigram_counts(corpus)) if spec.objective.generator == "unigram" else None
        noise = noise_weights(corpus.vocab_size, SpecialTokens(*corpus.special), counts)
    return ElectraForPretraining(spec.model, corpus.vocab_size, spec.objective, rng, noise)


def build_optimizer(spec: PretrainSpec, networks: nn.Module) -> ElectraAdam:
    """The optimizer of the spec; its learning rate is set at every step."""
    config = spec.optimizer
    return ElectraAdam(
        parameter_groups(networks, config.weight_decay),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
    )


class Batches:
    """This worker's rows of any step, masked, on its device."""

    def __init__(self, task: TrainingTask, worker: Worker) -> None:
        training, self._masking = task.spec.training, task.spec.masking
        self._seed, self._batch_size, self._device = training.seed, training.global_batch_size, worker.device
        weights = tuple(source.weight for source in task.spec.corpus.sources)
        self._rows = TrainingRows(task.corpus, weights, training.sequence_length, training.seed)
        share = worker.share(training.global_batch_size)
        self._positions = np.arange(share.start, share.stop)
        self._global_rows = torch.from_numpy(self._positions).to(worker.device)
        self._special, self._vocab_size = SpecialTokens(*task.corpus.special), task.corpus.vocab_size

    def at(self, step: int) -> MaskedBatch:
        """The batch of a step: int64[B, L] where B is this worker's share of the global batch."""
        ids = torch.from_numpy(self._rows.rows(step, self._positions, self._batch_size))
        if self._device.type == "cuda":
            ids = ids.pin_memory()  # from pageable memory the copy would wait for the steps before it
        ids = ids.to(self._device, non_blocking=True)
        batch = TokenBatch(
            input_ids=ids,
            attention_mask=torch.ones_like(ids, dtype=torch.bool),
            rows=self._global_rows,
            is_packed=True,  # rows are cut from the stream full
        )
        draws = Draws(self._seed, step, self._global_rows)
        return apply_mask(batch, self._masking, self._special, draws, self._vocab_size)


def train(task: TrainingTask, worker: Worker, telemetry: Telemetry) -> int:
    """Train to the last step, or until told to stop.

    Returns:
        The number of steps taken: `num_train_steps`.

    Raises:
        NonFiniteLossError: a loss was NaN or infinite; nothing after the last good checkpoint was saved.
        JobCancelled: the job was asked to stop; a checkpoint was saved first.
        CheckpointError: the checkpoints belong to another spec.
    """
    spec, training = task.spec, task.spec.training

    networks = build_networks(spec, task.corpus).to(worker.device)
    optimizer = build_optimizer(spec, networks)
    step = restore_checkpoint(task.checkpoints_uri, networks, optimizer, task.identity)
    _check_same_start(worker, step)
    parameters = list(networks.parameters())

    batches = Batches(task, worker)
    held_out = ValidationRows(task.corpus, training.sequence_length, spec.evaluation.max_rows)
    peak_rate = _peak_rate(worker, training.precision)
    window = Window(worker, spec, task.corpus.vocab_size, step, peak_rate)
    if worker.is_first:
        log.info("training_started", extra={"step": step, "num_workers": worker.world_size})

    networks.train()
    first_step = step
    model: nn.Module = networks
    while step < training.num_train_steps:
        if step == first_step or step in spec.objective.stage_starts(training.num_train_steps):
            with window.paused():
                model = _enter_stage(networks, spec, worker, step, batches)
        batch = batches.at(step)
        # The losses are means over the whole global batch, so every worker divides by the global counts. The wish to
        # stop travels along, so that all workers see it at the same step.
        wish = torch.tensor(float(telemetry.wants_to_stop(worker)), device=worker.device)
        num_masked, num_real, votes = worker.sum(torch.stack([batch.num_masked, batch.num_real, wish]))
        for micro, is_last in _micro_batches(batch, training.gradient_accumulation_steps):
            with _no_sync(model, not is_last), _autocast(worker, training.precision):
                sums: ObjectiveSums = model(micro, Draws(training.seed, step, micro.rows))
            loss = sums.total(num_masked, num_real)
            # DistributedDataParallel averages gradients over the workers; ours are parts of a sum.
            (loss * worker.world_size).backward()
            window.add(sums)
        grad_norm = clip_by_global_norm(parameters, spec.optimizer.max_grad_norm)
        rate = learning_rate(step, spec.optimizer, training.num_train_steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        window.watch(step, loss, grad_norm)
        step += 1

        is_end = step == training.num_train_steps
        is_log_step = step % training.log_interval_steps == 0 or is_end
        # On a GPU the votes are read at log steps alone, like all that would make the host wait for the device.
        should_stop = (is_log_step or worker.device.type == "cpu") and bool(votes > 0)
        if is_log_step:
            telemetry.log_training(step, window.read(step) | {"learning_rate": rate})
        elif telemetry.is_due():
            telemetry.report_step(step)
        if step % spec.evaluation.interval_steps == 0 and not is_end:  # the end is evaluated by a stage of its own
            window.raise_if_not_finite()
            with window.paused():
                telemetry.log_evaluation(step, evaluate(networks, held_out, task, worker).figures)
                networks.train()
        if step % training.checkpoint_interval_steps == 0 or is_end or should_stop:
            window.raise_if_not_finite()
            if worker.is_first:
                with window.paused():
                    checkpoint = save_checkpoint(
                        task.checkpoints_uri,
                        step,
                        networks,
                        optimizer,
                        task.identity,
                        training.num_checkpoints_to_keep,
                    )
                log.info("checkpoint_saved", extra={"step": step, "uri": checkpoint.uri})
        if should_stop and not is_end:
            raise JobCancelled
    return step


class Window:
    """Losses and speed between two readings, kept on the device so that no step waits for the host."""

    def __init__(
        self, worker: Worker, spec: PretrainSpec, vocab_size: int, step: int, peak_flops_per_second: float
    ) -> None:
        self._worker = worker
        self._spec = spec
        self._vocab_size = vocab_size
        self._peak = peak_flops_per_second
        self._sums: dict[str, Tensor] = {}
        self._grad_norm = torch.zeros((), device=worker.device)
        self._first_bad_step = torch.full((), -1, dtype=torch.int64, device=worker.device)
        self._read_step = step
        self._clock = time.perf_counter()

    def add(self, sums: ObjectiveSums) -> None:
        """Add one micro-batch's sums."""
        for name, value in sums.detached().items():
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
        seconds = time.perf_counter() - self._clock
        steps = step - self._read_step
        tokens_per_second = steps * self._spec.tokens_per_step / max(seconds, 1e-9)
        flops = self._flops_until(step)
        readings = figures(dict(zip(self._sums, sums, strict=True)))
        readings |= {
            "gradient_norm": float(self._grad_norm),
            "tokens": float(step * self._spec.tokens_per_step),
            "tokens_per_second": tokens_per_second,
            "flops": flops,
            "mfu": (flops - self._flops_until(self._read_step)) / max(seconds, 1e-9) / self._peak,
        }
        self._sums, self._read_step, self._clock = {}, step, time.perf_counter()
        return readings

    def _flops_until(self, step: int) -> float:
        spec = self._spec
        return spec.tokens_per_step * training_flops_until(
            step,
            spec.training.num_train_steps,
            spec.model,
            spec.masking,
            self._vocab_size,
            spec.training.sequence_length,
            spec.objective,
        )

    def raise_if_not_finite(self) -> None:
        """Raise on every worker if any of them met a loss or gradient that was not finite."""
        bad_step = self._first_bad_step.clone()
        if self._worker.world_size > 1:
            torch.distributed.all_reduce(bad_step, op=torch.distributed.ReduceOp.MAX)
        if bad_step >= 0:
            raise NonFiniteLossError(int(bad_step))


def _check_same_start(worker: Worker, step: int) -> None:
    """Refuse to train on if the workers found different checkpoints: their weights would drift apart unseen."""
    steps = worker.gather(torch.tensor([step], device=worker.device)).tolist()
    if len(set(steps)) > 1:
        raise CheckpointError(f"all workers must start from one checkpoint, got steps {steps} by rank")


def _peak_rate(worker: Worker, precision: str) -> float:
    """FLOP/s of matrix products over all workers, each measured while the others measure too."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    rate = torch.tensor(matrix_product_flops_per_second(worker.device, dtype), dtype=torch.float64)
    return float(worker.sum(rate.to(worker.device)))


def _enter_stage(
    networks: ElectraForPretraining, spec: PretrainSpec, worker: Worker, step: int, batches: Batches
) -> nn.Module:
    """Ready the networks for the stage of the objective that a step belongs to, and wrap them for all workers.

    The optimizer has all parameters from the start, so that it is saved alike in every stage.
    """
    training, objective = spec.training, spec.objective
    stage = objective.stage_at(step, training.num_train_steps)
    networks.enter_stage(stage, is_start=step in objective.stage_starts(training.num_train_steps))
    # Which parameters take gradient is fixed when DistributedDataParallel wraps them.
    model = worker.parallelise(networks)
    micro = batches.at(step).split(training.gradient_accumulation_steps)[0]
    with _autocast(worker, training.precision):
        _settle_gradient_buckets(model, micro, Draws(training.seed, step, micro.rows))
    return model


def _settle_gradient_buckets(model: nn.Module, batch: MaskedBatch, draws: Draws) -> None:
    """Run two backward passes whose gradients are thrown away.

    DistributedDataParallel lays its buckets out anew after the first backward pass. Sums over three workers or more
    depend on that layout in their last bits, so a resumed run must not take its first real step with another layout
    than the undisturbed run had there.
    """
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return
    for _ in range(2):
        sums: ObjectiveSums = model(batch, draws)
        (0.0 * sums.total(1.0, 1.0)).backward()
        model.zero_grad(set_to_none=True)


def _micro_batches(batch: MaskedBatch, count: int) -> Iterator[tuple[MaskedBatch, bool]]:
    for index, micro in enumerate(batch.split(count)):
        yield micro, index == count - 1


def _no_sync(model: nn.Module, is_wanted: bool) -> contextlib.AbstractContextManager[None]:
    """Between micro-batches gradients are summed locally; only the last one talks to the other workers."""
    if is_wanted and isinstance(model, nn.parallel.DistributedDataParallel):
        return model.no_sync()
    return contextlib.nullcontext()


def _autocast(worker: Worker, precision: str) -> torch.autocast:
    return torch.autocast(worker.device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
