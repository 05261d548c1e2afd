"""Whole training jobs on a small Ray cluster of our own, and their speed by their own record."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlflow
from ray_environment import start_ray  # sorted before what imports Ray, which reads its environment then

from pipelines.job import JobDirectory
from pipelines.record import tracking
from pipelines.specs.pretrain import PretrainSpec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.training.fitting import WorkerTask, fit
from pipelines.training.task import TrainingTask

__all__ = ["start_ray", "tokens_per_second"]


def tokens_per_second(
    spec: PretrainSpec, corpus: PreparedCorpus, folder: Path, name: str, num_warmup_steps: int
) -> float:
    """Run a job and read its speed off its metrics: tokens over wall time between the first entry after the warm-up
    and the last, which is written before the last checkpoint.
    """
    directory = JobDirectory(str(folder / "jobs" / name))
    store = f"sqlite:///{folder / 'mlflow.db'}"
    run = tracking.open_run(store, "benchmark", name, name, {}, str(folder / "mlflow"))
    fit(WorkerTask(TrainingTask(spec, corpus, directory.path("checkpoints")), directory.uri, run, attempt=1))
    history = mlflow.MlflowClient(tracking_uri=store).get_metric_history(run.run_id, "train/tokens")
    logged = sorted((metric for metric in history if metric.step >= num_warmup_steps), key=lambda metric: metric.step)
    shutil.rmtree(directory.uri)
    milliseconds = logged[-1].timestamp - logged[0].timestamp
    return 1000 * float(logged[-1].value - logged[0].value) / milliseconds
