"""Training of a trial up to a step: in this process where it has one worker, else by Ray Train."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import torch

from electra_core.pretraining import ElectraForPretraining
from pipelines.errors import CheckpointError
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.specs.pretrain import PretrainSpec
from pipelines.training.checkpoint import list_checkpoints, read_state
from pipelines.training.curve import CurveTelemetry, read_curve
from pipelines.training.fitting import WorkerTask, fit
from pipelines.training.task import TrainingTask, build_networks
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

Losses = tuple[tuple[int, Mapping[str, float]], ...]


def device_of(spec: PretrainSpec) -> torch.device:
    """Where a trial of one worker computes."""
    return torch.device("cuda" if spec.compute.gpus_per_worker else "cpu")


def train_until(task: TrainingTask, step: int, uri: str, job_uri: str) -> Losses:
    """Train to a step and leave a checkpoint there.

    Args:
        task: of the trial.
        step: where to stop; a run that has come so far returns at once.
        uri: folder of the trial.
        job_uri: of the search, whose control.json ends the training.

    Returns:
        Figures at each log step of the trial so far, also of processes before this one.

    Raises:
        JobCancelled: the job was asked to stop.
        NonFiniteLossError: a loss was NaN or infinite; `read_curve` has the figures until then.
        PipelineError: see `train`.
    """
    until, spec = replace(task, until_step=step), task.spec
    if spec.compute.num_workers == 1:
        is_gpu = spec.compute.gpus_per_worker > 0
        if is_gpu:
            # Trials of other sizes in one process: their graphs would pile up, to a limit, and so would their memory.
            torch._dynamo.reset()
            torch.cuda.empty_cache()
        worker = Worker(device=device_of(spec), compile_backend="inductor" if is_gpu and spec.compute.compile else None)
        telemetry = CurveTelemetry(ProgressReporter(JobDirectory(job_uri)), uri, until)
        try:
            train(until, worker, telemetry)
        finally:
            telemetry.write()  # of a loss that was not finite too: it shows how it came to that
    else:
        # Ray Train resumes a name by itself, and the checkpoints are ours: a name of its own for each call.
        fit(WorkerTask(until, uri, None, time.time_ns(), control_uri=job_uri))
    return read_curve(uri)


def networks_at(task: TrainingTask, step: int) -> ElectraForPretraining:
    """The networks of a checkpoint, in the stage of their objective that this step ended in, on the CPU.

    Raises:
        CheckpointError: there is none of this step, or it is damaged.
    """
    found = [one for one in list_checkpoints(task.checkpoints_uri) if one.step == step]
    if not found:
        raise CheckpointError(f"{task.checkpoints_uri} must hold a checkpoint of step {step}, got none")
    networks = build_networks(task.spec, task.corpus)
    networks.load_state_dict(read_state(found[0])["networks"])
    spec = task.spec
    networks.enter_stage(spec.objective.stage_at(step - 1, spec.training.num_train_steps), is_start=False)
    return networks.eval()
