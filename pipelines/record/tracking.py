"""The record: one MLflow run per job, found by its tag or created, and opened again by every attempt."""

from __future__ import annotations

import functools
import importlib
import logging
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import mlflow
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException

from pipelines.claims import Guard, unguarded
from pipelines.errors import JobSuperseded, RecordError
from pipelines.record.identity import RunIdentity

log = logging.getLogger(__name__)

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")

JOB_TAG = "electra.job_id"
UNIT_TAG = "electra.unit"
FLUSH_INTERVAL_SECONDS = 2.0
CLOSE_TIMEOUT_SECONDS = 120.0
MAX_BATCH_METRICS = 1000
"""MLflow's limit for one request."""
MAX_BATCH_PARAMS = 100
MAX_PARAM_CHARACTERS = 6000
MAX_DESCRIPTION_CHARACTERS = 5000
"""Of a model version, in MLflow's PostgreSQL and MySQL stores."""
_CUTS_LONG_TEXTS: Mapping[str, Mapping[str, Any]] = {
    "text-classification": {"truncation": True},
    "feature-extraction": {"truncation": True},
    "fill-mask": {"tokenizer_kwargs": {"truncation": True}},
}
"""Transformers' pipeline to the settings with which it cuts a text at the tokenizer's `model_max_length`. Without them
it would fail; that of taggers cuts anyway."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,99}")


def _refusals_named(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Make MLflow's errors ours: they say what MLflow refused, and that the fault is not the training's."""

    @functools.wraps(function)
    def named(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        try:
            return function(*args, **kwargs)
        except MlflowException as error:
            raise RecordError(f"MLflow refused {function.__name__}: {error.message}") from error
        except OSError as error:  # requests' errors are: connections, and answers of the artifact routes
            raise RecordError(f"MLflow could not be reached for {function.__name__}: {error}") from error

    return named


@_refusals_named
def open_run(
    tracking_uri: str,
    experiment: str,
    job_id: str,
    run_name: str,
    tags: Mapping[str, str],
    artifact_location: str | None = None,
) -> RunIdentity:
    """Find the job's run by its tag or create it, and mark it as running.

    Args:
        tracking_uri: MLflow's server, or a database.
        experiment: created where there is none.
        job_id: what the run is found by.
        run_name: shown to people.
        tags: set anew by every attempt.
        artifact_location: where a new experiment keeps its files if no server decides that.

    Raises:
        RecordError: MLflow does not answer, or refuses.
    """
    client = mlflow.MlflowClient(tracking_uri=tracking_uri)
    found = client.get_experiment_by_name(experiment)
    if found is not None and found.lifecycle_stage != "active":
        raise RecordError(
            f"record.experiment {experiment!r} is deleted in MLflow; restore it or name another", can_retry=False
        )
    experiment_id = (
        found.experiment_id if found is not None else _create_experiment(client, experiment, artifact_location)
    )
    query = f"tags.`{JOB_TAG}` = '{job_id}'"
    runs = client.search_runs([experiment_id], query, run_view_type=ViewType.ACTIVE_ONLY, max_results=1)
    run = runs[0] if runs else client.create_run(experiment_id, run_name=run_name, tags={JOB_TAG: job_id})
    client.update_run(run.info.run_id, status="RUNNING")
    client.log_batch(run.info.run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    return RunIdentity(tracking_uri, experiment_id, run.info.run_id)


def _create_experiment(client: mlflow.MlflowClient, name: str, artifact_location: str | None) -> str:
    try:
        return str(client.create_experiment(name, artifact_location))
    except MlflowException as error:
        found = client.get_experiment_by_name(name)  # another job may have created it just now
        if found is None:
            raise RecordError(f"MLflow refused to create the experiment {name!r}: {error.message}") from error
        return str(found.experiment_id)


class Run:
    """An open run. Metrics leave on a thread of their own, in batches, so that no training step waits for MLflow."""

    def __init__(
        self, identity: RunIdentity, recorded_steps: Mapping[str, int] | None = None, guard: Guard = unguarded
    ) -> None:
        """Open.

        Args:
            identity: the run.
            recorded_steps: first part of metric names, such as `train`, to the last step that an earlier attempt
                recorded of them; these are not recorded twice.
            guard: asked before figures are sent. Where it refuses, they are dropped, and all that come after.
        """
        self.identity = identity
        self._recorded_steps = recorded_steps or {}
        self._guard = guard
        self._is_superseded = False
        self._num_unsent = 0
        self._client = mlflow.MlflowClient(tracking_uri=identity.tracking_uri)
        self._queue: queue.Queue[Metric] = queue.Queue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._flush_until_closed, daemon=True, name="mlflow")
        self._thread.start()

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue metrics of a step; values that are not finite are left out, since MLflow's stores differ on them."""
        timestamp_ms = int(time.time() * 1000)
        for key, value in metrics.items():
            if self._is_superseded:
                return
            is_new = step > self._recorded_steps.get(key.partition("/")[0], 0)
            if is_new and math.isfinite(value):
                self._queue.put(Metric(key, value, timestamp_ms, step))

    def close(self) -> int:
        """Send what is queued, for at most `CLOSE_TIMEOUT_SECONDS`.

        Returns:
            Metrics that MLflow did not take; logged as a warning. Figures are not worth a trained model.
        """
        self._closing.set()
        self._thread.join(timeout=CLOSE_TIMEOUT_SECONDS + 60)
        lost = 0 if self._is_superseded else self._num_unsent + self._queue.qsize()
        if lost:
            log.warning("metrics_lost", extra={"num_metrics": lost, "waited_seconds": CLOSE_TIMEOUT_SECONDS})
        return lost

    def _flush_until_closed(self) -> None:
        deadline: float | None = None
        batch: list[Metric] = []
        while True:
            is_closing = self._closing.wait(FLUSH_INTERVAL_SECONDS)
            if is_closing and deadline is None:
                deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
            while True:
                while len(batch) < MAX_BATCH_METRICS and not self._queue.empty():
                    batch.append(self._queue.get_nowait())
                if not batch:
                    break
                try:
                    self._guard()
                    self._client.log_batch(self.identity.run_id, metrics=batch)
                except JobSuperseded as error:
                    log.warning("metrics_refused", extra={"reason": str(error), "num_metrics": len(batch)})
                    self._is_superseded = True
                    return
                except Exception as error:  # noqa: BLE001 - MLflow raises requests', urllib3's and its own
                    # Kept and sent again: an outage of MLflow must not cost a figure, let alone the training.
                    log.warning("mlflow_unavailable", extra={"reason": str(error)[:300], "num_metrics": len(batch)})
                    break
                batch = []
            if is_closing:
                if not batch:
                    return
                if deadline is not None and time.monotonic() > deadline:
                    self._num_unsent = len(batch)
                    return
                time.sleep(FLUSH_INTERVAL_SECONDS)


def last_recorded_step(identity: RunIdentity, key: str) -> int:
    """Highest step an earlier attempt recorded of a metric, 0 where it recorded none or MLflow does not say."""
    try:
        history = metric_history(identity, key)
    except RecordError as error:
        log.warning("mlflow_unavailable", extra={"reason": str(error)[:300]})
        return 0
    return max((step for step, _ in history), default=0)


@_refusals_named
def metric_history(identity: RunIdentity, key: str) -> list[tuple[int, float]]:
    """(step, value) of a metric, by step; the last of several values at one step."""
    history = mlflow.MlflowClient(tracking_uri=identity.tracking_uri).get_metric_history(identity.run_id, key)
    return sorted({metric.step: metric.value for metric in history}.items())


@_refusals_named
def log_params(identity: RunIdentity, params: Mapping[str, Any]) -> None:
    """Record a nested mapping as flat `section.field` parameters. The same values may be recorded again."""
    client = mlflow.MlflowClient(tracking_uri=identity.tracking_uri)
    flat = [Param(key, str(value)[:MAX_PARAM_CHARACTERS]) for key, value in flatten(params).items()]
    for start in range(0, len(flat), MAX_BATCH_PARAMS):
        client.log_batch(identity.run_id, params=flat[start : start + MAX_BATCH_PARAMS])


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys. Lists are left whole, and so are mappings whose keys are words of a
    user's, which MLflow may not take in a name.
    """
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping) and all(_NAME.fullmatch(str(name)) for name in value):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


@_refusals_named
def set_tags(identity: RunIdentity, tags: Mapping[str, str]) -> None:
    """Record facts that another attempt may find changed."""
    client = mlflow.MlflowClient(tracking_uri=identity.tracking_uri)
    client.log_batch(identity.run_id, tags=[RunTag(key, value) for key, value in tags.items()])


@_refusals_named
def log_artifacts(identity: RunIdentity, folder: Path, artifact_path: str | None = None) -> None:
    """Record the files of a local folder."""
    client = mlflow.MlflowClient(tracking_uri=identity.tracking_uri)
    client.log_artifacts(identity.run_id, str(folder), artifact_path)


@_refusals_named
def end_run(identity: RunIdentity, status: str, tags: Mapping[str, str] | None = None) -> None:
    """Close the run as FINISHED, FAILED or KILLED, or leave it SCHEDULED: it goes on some day."""
    client = mlflow.MlflowClient(tracking_uri=identity.tracking_uri)
    if tags:
        client.log_batch(identity.run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    if status == "SCHEDULED":
        client.update_run(identity.run_id, status=status)
        return
    client.set_terminated(identity.run_id, status=status)


def import_flavour() -> None:
    """Import what `register_model` needs, ahead of time: seconds that are free while training workers start."""
    import transformers

    importlib.import_module("mlflow.transformers")
    for name in ("AutoTokenizer", "ElectraForMaskedLM", "ElectraForPreTraining"):  # each imported on first sight
        getattr(transformers, name)


@_refusals_named
def register_model(
    identity: RunIdentity,
    folder: Path,
    artifact_name: str,
    model_name: str,
    alias: str,
    architecture: str,
    task: str,
    pip_requirements: Sequence[str],
    tags: Mapping[str, str],
    description: str,
    input_example: Sequence[str | Mapping[str, str]] | None = None,
    model_config: Mapping[str, Any] | None = None,
) -> str:
    """Log a folder in the Transformers layout through the `transformers` flavour, register it and move the alias.

    A repeated call for the same run finds the version it made before.

    Args:
        identity: the run that made the model.
        folder: config.json, model.safetensors and tokenizer files.
        artifact_name: what the logged model is called within the run.
        model_name: registered model; it is created where there is none.
        alias: moves to this version.
        architecture: Transformers' class of the network.
        task: Transformers' pipeline that serves it.
        pip_requirements: pinned packages; MLflow would spend seconds inferring them.
        tags: of the version.
        description: of the version, Markdown.
        input_example: texts the pipeline takes, or mappings where each input is several; its signature is inferred
            from them.
        model_config: settings of the pipeline in MLflow's `pyfunc`, besides that long texts are cut.

    Returns:
        The version.
    """
    client = mlflow.MlflowClient(tracking_uri=identity.tracking_uri)
    versions = [
        version
        for version in client.search_model_versions(f"name = '{model_name}'")
        if version.run_id == identity.run_id
    ]
    if versions:
        version = str(max(int(version.version) for version in versions))
    else:
        version = _log_and_register(
            identity,
            folder,
            artifact_name,
            model_name,
            architecture,
            task,
            pip_requirements,
            input_example,
            {**_CUTS_LONG_TEXTS.get(task, {}), **(model_config or {})},
        )
    client.update_model_version(model_name, version, description[:MAX_DESCRIPTION_CHARACTERS])
    for key, value in tags.items():
        client.set_model_version_tag(model_name, version, key, value)
    client.set_registered_model_alias(model_name, alias, version)
    return version


def _log_and_register(
    identity: RunIdentity,
    folder: Path,
    artifact_name: str,
    model_name: str,
    architecture: str,
    task: str,
    pip_requirements: Sequence[str],
    input_example: Sequence[str | Mapping[str, str]] | None,
    model_config: Mapping[str, Any],
) -> str:
    # These take seconds, and only the last stage needs them.
    import mlflow.transformers
    import transformers

    transformers.utils.logging.disable_progress_bar()
    # Components and not the folder itself: MLflow 3.17 cannot read Transformers 5's lazy table of pipelines.
    components = {
        "model": getattr(transformers, architecture).from_pretrained(folder),
        "tokenizer": transformers.AutoTokenizer.from_pretrained(folder),
    }
    mlflow.set_tracking_uri(identity.tracking_uri)
    with mlflow.start_run(run_id=identity.run_id):
        info = mlflow.transformers.log_model(
            transformers_model=components,
            name=artifact_name,
            task=task,
            pip_requirements=list(pip_requirements),
            registered_model_name=model_name,
            input_example=None if input_example is None else list(input_example),
            model_config=dict(model_config),
        )
    return str(info.registered_model_version)


@_refusals_named
def record_child(
    parent: RunIdentity,
    name: str,
    unit: str,
    params: Mapping[str, Any],
    metrics: Sequence[tuple[str, int, float]],
    tags: Mapping[str, str] | None = None,
    seconds: float = 0.0,
) -> None:
    """Record a finished part of a job as a child of its run; what is on record already is left as it is.

    Args:
        parent: the job's run.
        name: shown to people.
        unit: tells the part from the job's others; the child is found by it.
        params: of the part, nested or flat. MLflow lets none of them change.
        metrics: name, step and value; values that are not finite are left out.
        tags: what may change until the job ends. A child that has them is whole; one with others is gone on with.
        seconds: how long the part took. The child ends when it is recorded, and begins so long before.
    """
    client = mlflow.MlflowClient(tracking_uri=parent.tracking_uri)
    query = f"tags.`mlflow.parentRunId` = '{parent.run_id}' and tags.`{UNIT_TAG}` = '{unit}'"
    found = client.search_runs([parent.experiment_id], query, run_view_type=ViewType.ACTIVE_ONLY, max_results=1)
    wanted = dict(tags or {})
    if found and found[0].info.status == "FINISHED" and wanted.items() <= found[0].data.tags.items():
        return
    own_tags = {"mlflow.parentRunId": parent.run_id, UNIT_TAG: unit}
    now_ms = int(time.time() * 1000)
    start_ms = now_ms - int(seconds * 1000)
    run = found[0] if found else client.create_run(parent.experiment_id, start_ms, own_tags, name)
    child = RunIdentity(parent.tracking_uri, parent.experiment_id, run.info.run_id)
    log_params(child, {key: value for key, value in flatten(params).items() if key not in run.data.params})
    known = {(key, step) for key in run.data.metrics for step, _ in metric_history(child, key)}
    values = [
        Metric(key, value, now_ms, step)
        for key, step, value in metrics
        if math.isfinite(value) and (key, step) not in known
    ]
    for start in range(0, len(values), MAX_BATCH_METRICS):
        client.log_batch(child.run_id, metrics=values[start : start + MAX_BATCH_METRICS])
    if wanted:  # last, for whoever finds them takes the child for whole
        set_tags(child, wanted)
    client.set_terminated(child.run_id, status="FINISHED")
