"""The training loop: what every data-parallel worker runs, from restored weights to the last checkpoint.

Every batch, mask, dropout draw and sample is a pure function of (seed, step, row of the global batch). The loop
therefore keeps no state but the step, the weights and Adam's moments: it resumes exactly, and under another number
of workers it sees the same batches.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import torch
from torch import nn

from electra_core.batches import MaskedBatch
from electra_core.objectives import ObjectiveSums
from electra_core.optimizer import clip_by_global_norm, make_optimizer, set_learning_rate
from electra_core.pretraining import ElectraForPretraining
from electra_core.randomness import Draws
from electra_core.schedule import learning_rate
from pipelines.claims import Guard, unguarded
from pipelines.errors import CheckpointError, JobCancelled
from pipelines.rows.loader import ValidationRows
from pipelines.specs.compute import Precision
from pipelines.specs.pretrain import PretrainSpec
from pipelines.training.batches import Batches
from pipelines.training.checkpoint import restore_checkpoint
from pipelines.training.checkpoint_writer import CheckpointWriter
from pipelines.training.evaluate import evaluate
from pipelines.training.precision import autocast, computed_in, muon_products_dtype
from pipelines.training.rate import matrix_product_flops_per_second
from pipelines.training.task import TrainingTask, build_networks
from pipelines.training.telemetry import Telemetry
from pipelines.training.window import Window
from pipelines.training.workers import Worker
from pipelines.weights.kept import start_from

log = logging.getLogger(__name__)


def train(task: TrainingTask, worker: Worker, telemetry: Telemetry, guard: Guard = unguarded) -> int:
    """Train to the task's last step, or until told to stop; `guard` is asked before a checkpoint is made to count.

    Returns:
        The number of steps taken.

    Raises:
        NonFiniteLossError: a loss was NaN or infinite; nothing after the last good checkpoint was saved.
        JobCancelled: the job was asked to stop; a checkpoint was saved first.
        JobSuperseded: the guard says that another process has the job.
        CheckpointError: the checkpoints belong to another spec, or no one of them can be read by all workers.
        StorageError: a checkpoint could not be read or written.
    """
    spec, training = task.spec, task.spec.training

    networks = build_networks(spec, task.corpus).to(worker.device)
    start_from(networks, task.initial_weights)  # a checkpoint of this job, restored below, outranks it
    # Of all parameters, whichever the first stage trains: so it is saved alike in every stage.
    muon_dtype = muon_products_dtype(training.precision, worker.device)
    optimizer = make_optimizer(networks, spec.optimizer, worker, muon_dtype)
    step = restore(task, worker, networks, optimizer)
    parameters = list(networks.parameters())

    batches = Batches(task, worker)
    held_out = ValidationRows(task.corpus, training.sequence_length, spec.evaluation.max_rows)
    peak_rate = _peak_rate(worker, training.precision)
    window = Window(worker, task, step, peak_rate)
    if worker.is_first:
        said = {"num_workers": worker.world_size, "precision": computed_in(training.precision, worker.device)}
        log.info("training_started", extra={"step": step, **said})

    networks.train()
    first_step = step
    model: nn.Module = networks
    keep = training.num_checkpoints_to_keep
    with CheckpointWriter(task.checkpoints_uri, task.identity, keep, guard) as checkpoints:
        while step < task.end_step:
            if step == first_step or step in spec.objective.stage_starts(training.num_train_steps):
                with window.paused():
                    model = _enter_stage(networks, spec, worker, step, batches)
            batch, draws = batches.at(step)
            # The losses are means over the whole global batch, so every worker divides by the global counts. The wish
            # to stop travels along, so that all workers see it at the same step.
            wish = torch.tensor(float(telemetry.wants_to_stop(worker)), device=worker.device)
            num_masked, num_real, votes = worker.sum(torch.stack([batch.num_masked, batch.num_real, wish]))
            for micro, is_last in _micro_batches(batch, training.gradient_accumulation_steps):
                with _no_sync(model, not is_last), autocast(training.precision, worker.device):
                    sums: ObjectiveSums = model(micro, draws.for_rows(micro.rows))
                loss = sums.total(num_masked, num_real)
                loss.backward()
                window.add(sums)
            worker.sum_gradients(parameters)
            grad_norm = clip_by_global_norm(parameters, spec.optimizer.max_grad_norm)
            rate = learning_rate(step, spec.optimizer, training.num_train_steps)
            set_learning_rate(optimizer, rate)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            window.watch(step, loss, grad_norm)
            step += 1

            is_end = step == task.end_step
            is_log_step = step % training.log_interval_steps == 0 or is_end
            # On a GPU the votes are read at log steps alone, like all that would make the host wait for the device.
            should_stop = (is_log_step or worker.device.type == "cpu") and bool(votes > 0)
            if is_log_step:
                telemetry.log_training(step, window.read(step) | {"learning_rate": rate})
                checkpoints.raise_if_failed()
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
                        checkpoints.save(step, networks, optimizer)
            if should_stop:
                break
    if step < task.end_step:
        raise JobCancelled
    return step


def restore(
    task: TrainingTask, worker: Worker, networks: ElectraForPretraining, optimizer: torch.optim.Optimizer
) -> int:
    """Load the newest checkpoint; returns its step, the same on every worker.

    Where the workers found different ones (a write became complete while they looked, a copy is damaged), the newest
    that all can read is taken.

    Raises:
        CheckpointError: there is none that all can read: trained on, their weights would drift apart unseen.
    """

    def load(only_step: int | None = None) -> list[int]:
        step = restore_checkpoint(task.checkpoints_uri, networks, optimizer, task.identity, only_step)
        return worker.gather(torch.tensor([step], device=worker.device)).tolist()

    found = load()
    if len(set(found)) == 1:
        return found[0]
    for wanted in sorted(set(found) - {0}, reverse=True):  # 0 is no checkpoint: whoever has loaded one cannot go back
        if set(load(wanted)) == {wanted}:
            return wanted
    raise CheckpointError(f"all workers must start from one checkpoint, got steps {found} by rank")


def _peak_rate(worker: Worker, precision: Precision) -> float:
    """FLOP/s of matrix products over all workers, each measured while the others measure too."""
    dtype = torch.bfloat16 if computed_in(precision, worker.device) == "bf16" else torch.float32
    rate = torch.tensor(matrix_product_flops_per_second(worker.device, dtype), dtype=torch.float64)
    return float(worker.sum(rate.to(worker.device)))


def _enter_stage(
    networks: ElectraForPretraining, spec: PretrainSpec, worker: Worker, step: int, batches: Batches
) -> nn.Module:
    """Ready the networks for the stage of the objective that a step belongs to, and wrap them for all workers."""
    training, objective = spec.training, spec.objective
    stage = objective.stage_at(step, training.num_train_steps)
    networks.enter_stage(stage, is_start=step in objective.stage_starts(training.num_train_steps))
    # Which parameters take gradient is fixed when DistributedDataParallel wraps them.
    model = worker.parallelise(worker.compiled(networks))
    if isinstance(model, nn.parallel.DistributedDataParallel):
        batch, draws = batches.at(step)
        micro = batch.split(training.gradient_accumulation_steps)[0]
        with autocast(training.precision, worker.device):
            _settle_gradient_buckets(model, micro, draws.for_rows(micro.rows))
    return model


def _settle_gradient_buckets(model: nn.Module, batch: MaskedBatch, draws: Draws) -> None:
    """Run two backward passes whose gradients are thrown away.

    DistributedDataParallel lays its buckets out anew after the first backward pass. Sums over three workers or more
    depend on that layout in their last bits, so a resumed run must not take its first real step with another layout
    than the undisturbed run had there.
    """
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
