"""Models of MLflow's registry, as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mlflow
from mlflow.exceptions import MlflowException

from pipelines.errors import RecordError
from pipelines.record.tracking import JOB_TAG

_MODEL_FOLDER, _TOKENIZER_FOLDER = "model", "components/tokenizer"
"""Where the `transformers` flavour puts a model that was logged in parts."""


@dataclass(frozen=True)
class ModelOfRegistry:
    """A version's files, on this machine."""

    model: Path
    """Folder in the layout of Transformers."""
    tokenizer: Path
    """Folder with its tokenizer."""
    version: str
    job_id: str | None
    """Of the job that made it."""


def download_transformers_model(
    tracking_uri: str, model_uri: str, folder: Path, field: str = "model"
) -> ModelOfRegistry:
    """Copy a registered model of the `transformers` flavour.

    Args:
        tracking_uri: MLflow's server, or a database.
        model_uri: `models:/name@alias` or `models:/name/version`.
        folder: gets the files.
        field: of the spec, for messages.

    Raises:
        RecordError: there is no such model, it is of another flavour, or MLflow does not answer.
    """
    client = mlflow.MlflowClient(tracking_uri=tracking_uri)
    name, _, alias = model_uri.removeprefix("models:/").partition("@")
    try:
        if alias:
            found = client.get_model_version_by_alias(name, alias)
        else:
            name, _, number = name.rpartition("/")
            found = client.get_model_version(name, number)
        mlflow.set_tracking_uri(tracking_uri)
        local = Path(mlflow.artifacts.download_artifacts(f"models:/{name}/{found.version}", dst_path=str(folder)))
    except MlflowException as error:
        is_absent = error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
        raise RecordError(
            f"{field} must be registered in MLflow, got {model_uri}: {error.message}", can_retry=not is_absent
        ) from error
    except OSError as error:  # requests' errors are
        raise RecordError(f"MLflow could not be reached for {model_uri}: {error}") from error
    model, tokenizer = local / _MODEL_FOLDER, local / _TOKENIZER_FOLDER
    if not (model / "config.json").exists():
        raise RecordError(
            f"{model_uri} must be of MLflow's transformers flavour, got no {_MODEL_FOLDER}/config.json in it",
            can_retry=False,
        )
    return ModelOfRegistry(
        model, tokenizer if tokenizer.is_dir() else model, str(found.version), dict(found.tags).get(JOB_TAG)
    )
