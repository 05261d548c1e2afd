"""The entrypoint of every job, whoever submits it.

    python -m pipelines.main --job-uri URI --attempt N         what the service submits: spec.json lies there already
    python -m pipelines.main --spec spec.yaml [--set a.b=c]    what a person submits with `ray job submit`

Exit status 0: the job succeeded or was cancelled; 1: it failed, and result.json says why; 2: it could not start.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import ray
import ray.exceptions

from pipelines import storage, tracking
from pipelines.errors import (
    CheckpointError,
    CorpusError,
    JobCancelled,
    NonFiniteLossError,
    PipelineError,
    RecordError,
    ResourceError,
)
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.logs import configure_logging
from pipelines.pretrain import run_pretraining
from pipelines.specs.documents import Failure, JobResult, Stage
from pipelines.specs.parsing import SpecError, load_spec

log = logging.getLogger("pipelines.main")  # also when run with -m, where __name__ is __main__

STORAGE_VARIABLE = "ELECTRA_STORAGE_URI"
DEFAULT_STORAGE = "~/.electra/storage"
RAY_START_TIMEOUT_SECONDS = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; see the module's docstring."""
    options = _parse(arguments)
    try:
        directory = _open_directory(options)
    except (SpecError, PipelineError, OSError) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return 2
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing of a job is fetched from a hub
    configure_logging(job_id=directory.job_id, attempt=options.attempt)
    previous = directory.read_result()
    if previous is not None and previous.state == "SUCCEEDED":
        log.info("job_already_succeeded", extra={"uri": directory.uri})
        return 0
    result = run(directory, options.attempt)
    directory.write_result(result)
    log.info("job_finished", extra={"state": result.state, "uri": directory.uri, "models": _model_names(result)})
    return 1 if result.state == "FAILED" else 0


def run(directory: JobDirectory, attempt: int) -> JobResult:
    """Run the job in a directory; every fault becomes a result."""
    tracking_uri = _tracking_uri(directory)
    reporter = ProgressReporter(directory, heartbeat=True, attempt=attempt)
    try:
        spec = directory.read_spec()
        _connect_to_ray()
        with reporter:
            return run_pretraining(directory, spec, attempt, tracking_uri, reporter)
    except JobCancelled:
        return _end(directory, tracking_uri, reporter, JobResult(state="CANCELLED", attempt=attempt))
    except Exception as error:
        failure = describe_failure(error, reporter.current_stage)
        log.log(
            logging.ERROR, "job_failed", extra={"failure": failure.model_dump()}, exc_info=failure.code == "internal"
        )
        return _end(directory, tracking_uri, reporter, JobResult(state="FAILED", attempt=attempt, failure=failure))


def describe_failure(error: BaseException, stage: Stage) -> Failure:
    """What went wrong, for the user, and whether another attempt could end otherwise."""
    match error:
        case ray.exceptions.RayTaskError() if isinstance(error.cause, Exception):
            return describe_failure(error.cause, stage)
        case SpecError():
            details = tuple(str(problem) for problem in error.problems)
            return Failure(stage=stage, code="spec", message=str(error), details=details)
        case CorpusError():
            return Failure(stage=stage, code="data", message=error.message, details=error.report)
        case storage.StorageError() if stage == "prepare":
            return Failure(stage=stage, code="data", message=str(error))
        case NonFiniteLossError():
            return Failure(stage=stage, code="non_finite_loss", message=str(error), step=error.step)
        case ResourceError():
            return Failure(stage=stage, code="resources", message=str(error))
        case CheckpointError():
            return Failure(stage=stage, code="checkpoint", message=str(error))
        case RecordError():
            return Failure(stage=stage, code="record", message=str(error), can_retry=True)
        case ray.exceptions.RayError() | storage.StorageError():
            return Failure(stage=stage, code="internal", message=str(error)[:2000], can_retry=True)
        case _:
            message = f"{type(error).__name__}: {error}"
            return Failure(stage=stage, code="internal", message=message[:2000])


def _end(directory: JobDirectory, tracking_uri: str, reporter: ProgressReporter, result: JobResult) -> JobResult:
    """Complete a result that is not a success, and close its MLflow run, which cannot know of the end by itself."""
    progress = reporter.fields
    run_id, experiment_id = progress.get("mlflow_run_id"), progress.get("mlflow_experiment_id")
    if run_id is not None:
        status = "KILLED" if result.state == "CANCELLED" else "FAILED"
        tags = {"electra.failure": result.failure.message[:500]} if result.failure else {}
        try:
            tracking.end_run(tracking.RunIdentity(tracking_uri, str(experiment_id), str(run_id)), status, tags)
        except Exception as error:  # noqa: BLE001 - an unreachable MLflow must not hide why the job ended
            log.warning("mlflow_run_left_open", extra={"reason": str(error)[:300]})
    return result.model_copy(
        update={"finished_at": datetime.now(UTC), "mlflow_run_id": run_id, "mlflow_experiment_id": experiment_id}
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pipelines.main", description="Run one job.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--job-uri", help="directory of a job whose spec.json lies there")
    source.add_argument("--spec", help="a spec file (YAML or JSON)")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--job-id", help="with --spec: continue or start this job (default: a new one)")
    parser.add_argument("--storage-uri", help=f"with --spec: default ${STORAGE_VARIABLE}, else {DEFAULT_STORAGE}")
    parser.add_argument("--attempt", type=int, default=1)
    return parser.parse_args(arguments)


def _open_directory(options: argparse.Namespace) -> JobDirectory:
    if options.job_uri:
        return JobDirectory(storage.normalise(options.job_uri))
    spec = load_spec(Path(options.spec).read_bytes(), options.overrides)
    root = options.storage_uri or os.environ.get(STORAGE_VARIABLE) or str(Path(DEFAULT_STORAGE).expanduser())
    job_id = options.job_id or f"pt-{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"
    directory = JobDirectory(storage.join(storage.normalise(root), "jobs", job_id))
    directory.write_spec(spec)
    return directory


def _connect_to_ray() -> None:
    """Join the cluster the job was submitted to; without one, start a small one in this process."""
    if not ray.is_initialized():
        ray.init(
            address=os.environ.get("RAY_ADDRESS"),
            log_to_driver=True,
            configure_logging=False,
            logging_level=logging.WARNING,
        )


def _tracking_uri(directory: JobDirectory) -> str:
    """MLflow's server, or a database file beside the jobs where there is none."""
    given = os.environ.get("MLFLOW_TRACKING_URI")
    local = storage.local_path(directory.storage_uri)
    if given or local is None:
        return given or "sqlite:///mlflow.db"
    local.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{local / 'mlflow.db'}"


def _model_names(result: JobResult) -> list[str]:
    return [f"{model.name}@{model.alias} (version {model.version})" for model in result.models]


if __name__ == "__main__":
    sys.exit(main())
