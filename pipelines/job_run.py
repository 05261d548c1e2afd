"""The MLflow run of a job, whatever its kind."""

from __future__ import annotations

from importlib.metadata import version

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.record import tracking
from pipelines.record.identity import RunIdentity
from pipelines.specs.jobs import JobSpec

_SERVING_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")


def open_job_run(directory: JobDirectory, spec: JobSpec, attempt: int, tracking_uri: str) -> RunIdentity:
    """Find or create the job's run, and say who is at it.

    Raises:
        RecordError: MLflow does not answer, or refuses.
    """
    return tracking.open_run(
        tracking_uri,
        spec.record.experiment,
        directory.job_id,
        spec.name,
        {
            "electra.kind": spec.kind,
            "electra.attempt": str(attempt),
            "electra.job_uri": directory.uri,
            "mlflow.source.name": "pipelines.main",
            "mlflow.source.type": "JOB",
        },
        # A server decides for itself; without one, files must not land in a working directory that Ray deletes.
        None if tracking_uri.startswith("http") else storage.join(directory.storage_uri, "mlflow"),
    )


def serving_requirements() -> list[str]:
    """Pinned packages that a registered model needs; MLflow would spend seconds inferring them."""
    return [f"{package}=={version(package).partition('+')[0]}" for package in _SERVING_PACKAGES]
