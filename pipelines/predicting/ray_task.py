"""A prediction as one task on Ray."""

from __future__ import annotations

import os
from typing import Any

import ray

from pipelines.specs.prediction import FailureCode, PredictFailure, PredictJob, PredictOutcome
from pipelines.surroundings import connect_to_ray

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # nothing is fetched from a hub
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # MLflow would go on asking a server that is away for longer than anybody waits for a prediction.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


def predict_on_ray(job: PredictJob, tracking_uri: str) -> PredictOutcome:
    """Run the prediction on the cluster this process was started on, and wait no longer than it has time.

    Whatever goes wrong is the outcome: nothing is raised.
    """
    try:
        connect_to_ray()
        # No CPU is asked for: where a training job holds them all, the task would wait for its end. It takes one
        # thread beside them for some seconds instead. A lost process is not replaced: whoever waits can ask again.
        remote: Any = ray.remote(num_cpus=0, max_retries=0)(_predict)
        reference = remote.remote(job, tracking_uri)
        done, _ = ray.wait([reference], timeout=job.timeout_seconds)
        if not done:
            # It ends with this process, which is next; `ray.cancel` can take this process down before it has answered.
            return _failed("timed_out", f"the prediction must end within {job.timeout_seconds:g} s, and did not")
        outcome: PredictOutcome = ray.get(reference)
    except Exception as error:  # noqa: BLE001 - Ray raises all kinds; what the model raises is in the outcome
        return _failed("internal", f"the prediction failed on Ray: {_last_line(error)}")
    else:
        return outcome


def _predict(job: PredictJob, tracking_uri: str) -> PredictOutcome:
    """What runs in the task's process."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import torch  # after the environment, which these read when they are imported

    from pipelines.predicting.local import outcome_of, predict_with_registered

    torch.set_num_threads(1)  # those of a training job next to it are not crowded out
    return outcome_of(lambda: predict_with_registered(job, tracking_uri))


def _failed(code: FailureCode, message: str) -> PredictOutcome:
    return PredictOutcome(failure=PredictFailure(code=code, message=message))


def _last_line(error: Exception) -> str:
    """Of a task's error the text is a traceback; its last line says what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]
