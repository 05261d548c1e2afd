"""One request answered in this process: of a folder, or of a registered model that is downloaded first."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.errors import RecordError
from pipelines.predicting.errors import PredictError
from pipelines.predicting.model import LoadedModel, load_model
from pipelines.predicting.predict import predict
from pipelines.predicting.scratch import scratch_folder
from pipelines.specs.prediction import PredictAnswer, PredictFailure, PredictInput, PredictJob, PredictOutcome


def predict_with_folder(folder: Path, inputs: Sequence[PredictInput]) -> PredictAnswer:
    """What the model of a folder in the layout of Transformers says.

    Raises:
        PredictError: it is no such folder, or its model cannot read an input.
    """
    return _answer(str(folder), None, load_model(folder), inputs)


def predict_with_registered(job: PredictJob, tracking_uri: str) -> PredictAnswer:
    """What a model of MLflow's registry says.

    Args:
        job: names the model and holds the inputs.
        tracking_uri: MLflow's server, or a database.

    Raises:
        PredictError: there is no such model, MLflow does not answer, or the model cannot read an input.
    """
    from pipelines.record.registry import download_transformers_model  # imports MLflow

    with scratch_folder() as scratch:
        try:
            files = download_transformers_model(tracking_uri, job.model.uri, scratch)
        except RecordError as error:
            raise _named(error) from error
        # Inside the block: weights are mapped from their file, not read.
        return _answer(job.model.name, files.version, load_model(files.model, files.tokenizer), job.inputs)


def outcome_of(answer: Callable[[], PredictAnswer]) -> PredictOutcome:
    """The answer, or why there is none: whatever is raised becomes a sentence."""
    try:
        return PredictOutcome(answer=answer())
    except PredictError as error:
        return PredictOutcome(failure=error.failure)
    except Exception as error:  # noqa: BLE001 - a fault of ours, and whoever asked can do nothing with a traceback
        return PredictOutcome(failure=PredictFailure(code="internal", message=_surprise(error)))


def _answer(name: str, version: str | None, model: LoadedModel, inputs: Sequence[PredictInput]) -> PredictAnswer:
    return PredictAnswer(
        name=name, version=version, architecture=model.architecture, predictions=predict(model, inputs)
    )


def _surprise(error: Exception) -> str:
    """What was raised and where. Not its own words, which may hold a text: this sentence goes to the service's log."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"predicting failed unexpectedly: {type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"


def _named(error: RecordError) -> PredictError:
    if error.can_retry:
        return PredictError("unavailable", error.message)
    # MLflow's own word, the cause, is that there is none; without it a model was found, of a flavour that is no use.
    return PredictError("unsuitable_model" if error.__cause__ is None else "model_not_found", error.message)
