"""The train stage: Ray Train starts the workers, replaces lost ones, and tells how it ended."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

import ray
import ray.train
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from pipelines import storage
from pipelines.claims import Claim
from pipelines.errors import CheckpointError, JobCancelled, JobSuperseded, NonFiniteLossError, PipelineError
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.joblogs.context import current_context, keep_logs
from pipelines.logs import configure_logging
from pipelines.record.identity import RunIdentity
from pipelines.rows.loader import ValidationRows
from pipelines.training.checkpoint import list_checkpoints
from pipelines.training.curve import CurveTelemetry, say_alive
from pipelines.training.lost_workers import TellJob, TellTrial
from pipelines.training.shared_memory import COLLECTIVE_TIMEOUT_SECONDS, open_shared_memory
from pipelines.training.task import TrainingTask, training_rows
from pipelines.training.telemetry import HEADLINE_LOSSES, RecordedTelemetry, SilentTelemetry, Telemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import WORKER_ENVIRONMENT, Worker, choose_cpu_kernels, limit_threads

log = logging.getLogger(__name__)

RAY_TRAIN_FOLDER = "ray_train"
"""What Ray Train keeps of its own runs; nothing there is needed to go on."""
OUTCOME_FILE = "training_outcome.json"
"""How training ended, in the job's directory: Ray Train carries no word from the workers without a checkpoint."""


@dataclass(frozen=True)
class WorkerTask:
    """What Ray Train hands to every worker."""

    training: TrainingTask
    job_uri: str
    run: RunIdentity | None
    """Where rank 0 records; None keeps the curve in the folder `job_uri` instead, as trials of a search do."""
    attempt: int
    token: str | None = None
    """Of the driver's claim on the job's folder."""
    control_uri: str | None = None
    """Directory of the job whose control.json may end the training, when it is not `job_uri`."""
    taken_over_step: int | None = None
    """Of a retry: the step that another job's checkpoint had reached."""


def fit(task: WorkerTask) -> None:
    """Train to the end with the workers the spec asks for.

    Returns at once if the last checkpoint is there already.

    Raises:
        PipelineError: the corpus has no row of this length, or the loop ended before its last step.
        ray.train.TrainingFailedError: workers were lost more often than `training.max_failures`.
    """
    spec = task.training.spec
    checkpoints = list_checkpoints(task.training.checkpoints_uri)
    if checkpoints and checkpoints[-1].step >= task.training.end_step:
        return
    use_gpu = spec.compute.gpus_per_worker > 0
    resources: dict[str, float] = {"CPU": spec.compute.cpus_per_worker}
    if use_gpu:
        resources["GPU"] = spec.compute.gpus_per_worker
    directory = JobDirectory(task.job_uri)
    callbacks: list[Any] = [TellTrial(task.job_uri)]
    if task.run is not None:
        callbacks = [TellJob(Claim(task.job_uri, task.attempt, task.token), spec.compute.num_workers)]
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={"task": task, "logs": current_context()},
        torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo", timeout_s=COLLECTIVE_TIMEOUT_SECONDS),
        scaling_config=ScalingConfig(
            num_workers=spec.compute.num_workers, use_gpu=use_gpu, resources_per_worker=resources
        ),
        run_config=RunConfig(  # type: ignore[call-arg]  # typed as that of Ray Train's first version
            # A name of its own per attempt: Ray Train resumes a name by itself, and checkpoints are ours.
            name=f"{directory.job_id}-a{task.attempt}",
            storage_path=directory.path(RAY_TRAIN_FOLDER),
            failure_config=FailureConfig(max_failures=spec.training.max_failures),
            worker_runtime_env={"env_vars": WORKER_ENVIRONMENT},
            callbacks=callbacks,
        ),
    )
    outcome_uri = directory.path(OUTCOME_FILE)
    storage.write_json(outcome_uri, {"outcome": None})  # what an earlier attempt left is not this one's
    _check_rows(task.training)
    if sum(node["Alive"] for node in ray.nodes()) == 1:
        # It watches for nodes that will be taken away; where there is no other node it could change nothing, and its
        # process would cost every job five seconds.
        os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    trainer.fit()
    _raise_outcome(storage.read_json(outcome_uri), task.training.checkpoints_uri)


def _check_rows(task: TrainingTask) -> None:
    """Refuse a corpus too small for a row, or without continuations where the spec wants whole words, before any
    worker starts: they would fail one by one, and be restarted.
    """
    task.is_continuation(Worker())
    training_rows(task)
    ValidationRows(task.corpus, task.spec.training.sequence_length, task.spec.evaluation.max_rows)


def train_worker(config: dict[str, Any]) -> None:
    """What one worker process runs."""
    task: WorkerTask = config["task"]
    rank = ray.train.get_context().get_world_rank()
    configure_logging(job_id=JobDirectory(task.job_uri).job_id, rank=rank)
    with keep_logs(config.get("logs"), f"rank-{rank}"):
        _train_in_rank(task)


def _train_in_rank(task: WorkerTask) -> None:
    context = ray.train.get_context()
    limit_threads(task.training.spec.compute)
    library = choose_cpu_kernels()
    device = ray.train.torch.get_device() if task.training.spec.compute.gpus_per_worker else torch.device("cpu")
    rank, world_size = context.get_world_rank(), context.get_world_size()
    shared_memory = open_shared_memory(library, rank, world_size) if device.type == "cpu" else None
    backend = "inductor" if device.type == "cuda" and task.training.spec.compute.compile else None
    worker = Worker(rank, world_size, device, shared_memory, backend)
    outcome: dict[str, Any] = {"outcome": "finished"}
    # Outcomes are told, not raised: a worker that raises is started again, and would only end the same way again.
    try:
        _train_and_record(task, worker)
    except JobCancelled:
        outcome = {"outcome": "cancelled"}
    except JobSuperseded:
        return  # the folder is a later attempt's; the driver of this one ends the other workers
    except NonFiniteLossError as error:
        outcome = {"outcome": "non_finite_loss", "step": error.step}
    except CheckpointError as error:
        outcome = {"outcome": "checkpoint", "message": str(error)}
    if worker.is_first:
        storage.write_json(JobDirectory(task.job_uri).path(OUTCOME_FILE), outcome)


def _train_and_record(task: WorkerTask, worker: Worker) -> None:
    if not worker.is_first:
        train(task.training, worker, SilentTelemetry())
        return
    if task.run is None:
        say_alive(task.job_uri, "starting to train")
        reporter = ProgressReporter(JobDirectory(task.control_uri or task.job_uri))
        curve = CurveTelemetry(reporter, task.job_uri, task.training)
        try:
            train(task.training, worker, curve)
        finally:
            curve.write()  # of a loss that was not finite too: it shows how it came to that
        return
    # Only here: the other workers need no MLflow, and importing it takes seconds.
    from pipelines.record.tracking import Run, last_recorded_step

    spec = task.training.spec
    claim = Claim(task.job_uri, task.attempt, task.token)
    reporter = ProgressReporter(
        JobDirectory(task.job_uri),
        claim=claim,
        attempt=task.attempt,
        stage="train",
        num_train_steps=spec.training.num_train_steps,
        taken_over_step=task.taken_over_step,
        mlflow_run_id=task.run.run_id,
        mlflow_experiment_id=task.run.experiment_id,
    )
    recorded_steps = {
        split: max(last_recorded_step(task.run, f"{split}/{name}") for name in HEADLINE_LOSSES)
        for split in ("train", "eval")
    }
    run = Run(task.run, recorded_steps, claim.guard)
    telemetry: Telemetry = RecordedTelemetry(spec, reporter, run)
    try:
        train(task.training, worker, telemetry, claim.guard)
    finally:
        run.close()


def _raise_outcome(told: dict[str, Any], checkpoints_uri: str) -> None:
    match told.get("outcome"):
        case "finished":
            return
        case "cancelled":
            raise JobCancelled
        case "non_finite_loss":
            step = int(told["step"])
            checkpoints = list_checkpoints(checkpoints_uri)
            last_good = checkpoints[-1].uri if checkpoints else "none"
            raise NonFiniteLossError(
                step,
                f"the loss is not finite at step {step}; the last good checkpoint is {last_good}. "
                "Lower optimizer.learning_rate, or lengthen optimizer.warmup_steps",
            )
        case "checkpoint":
            raise CheckpointError(told["message"])
        case other:
            raise PipelineError(f"the training workers ended without a word (got {other!r})")
