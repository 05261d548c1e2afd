"""The entrypoint of every job, whoever submits it.

    python -m pipelines.main --job-uri URI --attempt N         what the service submits: spec.json lies there already
    python -m pipelines.main --spec spec.yaml [--set a.b=c]    what a person submits with `ray job submit`

Exit status 0: the job succeeded, was cancelled or paused; 1: it failed, and result.json says why; 2: it could not
start; 3: another process works for the job by now, and this one left without a word.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn

import ray
import ray.exceptions
import ray.train

from pipelines import claims, storage
from pipelines.announcing import announce
from pipelines.claims import Claim
from pipelines.errors import (
    CheckpointError,
    CorpusError,
    JobCancelled,
    JobSuperseded,
    NonFiniteLossError,
    PipelineError,
    RecordError,
    ResourceError,
)
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.joblogs.context import LogContext, keep_logs
from pipelines.logs import configure_logging
from pipelines.memory import is_out_of_memory, memory_message
from pipelines.origin import close_origins
from pipelines.record import tracking
from pipelines.record.identity import RunIdentity
from pipelines.specs.documents import Failure, JobResult, Stage
from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.jobs import ID_PREFIXES, JobSpec
from pipelines.specs.parsing import load_spec
from pipelines.specs.search import SearchSpec
from pipelines.specs.spec_errors import SpecError
from pipelines.surroundings import connect_to_ray, head_address, is_head_gone, tracking_uri_of

log = logging.getLogger("pipelines.main")  # also when run with -m, where __name__ is __main__

STORAGE_VARIABLE = "ELECTRA_STORAGE_URI"
DEFAULT_STORAGE = "~/.electra/storage"
RESULT_ATTEMPTS = 5
"""Times the last word is written before the job gives up: losing it would lose a finished job."""
STOPPED_STATUS = 143
SUPERSEDED_STATUS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; see the module's docstring."""
    options = _parse(arguments)
    try:
        directory = _open_directory(options)
        tracking_uri = tracking_uri_of(directory.storage_uri)
        # The first act: whichever process still works for the job, thought lost, reads it and leaves.
        # Without a service nobody counts: sent again, a job is its own next attempt.
        attempt = options.attempt or directory.read_attempt() + 1
        claim, before = claims.claim(directory.uri, attempt)
        fenced_at = time.monotonic() + claims.FENCE_SECONDS
        previous = directory.read_result()  # now that no earlier process may write one
    except JobSuperseded as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return SUPERSEDED_STATUS
    except (SpecError, PipelineError, OSError, ValueError) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return 2
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing of a job is fetched from a hub
    configure_logging(job_id=directory.job_id, attempt=attempt)
    if previous is not None and previous.state == "SUCCEEDED":
        log.info("job_already_succeeded", extra={"uri": directory.uri})
        return 0
    if options.spec:
        announce(directory, attempt)
    # What its workers print comes by here too: each keeps its own.
    with keep_logs(LogContext(directory.uri, attempt), "driver", prints=False):
        try:
            with ExitStack() as work:

                def begin() -> None:
                    claims.wait_for_leave(claim, before, fenced_at)
                    work.enter_context(claims.tenure(claim))

                result = run(directory, claim, tracking_uri, begin)
                _write_result(claim, directory, result)
        except JobSuperseded as error:
            log.warning("attempt_superseded", extra={"reason": str(error)})
            return SUPERSEDED_STATUS
        log.info("job_finished", extra={"state": result.state, "uri": directory.uri, "models": _model_names(result)})
    return 1 if result.state == "FAILED" else 0


def run(
    directory: JobDirectory, claim: Claim, tracking_uri: str, begin: Callable[[], None] = lambda: None
) -> JobResult:
    """Run the job in a directory; every fault becomes a result. `begin` is called before anything is done for it.

    Raises:
        JobSuperseded: another process has the folder. Nothing more may be written then.
    """
    attempt = claim.attempt
    reporter = ProgressReporter(directory, heartbeat=True, on_superseded=_leave, claim=claim, attempt=attempt)
    termination = Termination()
    head: str | None = None
    try:
        spec = directory.read_spec()
        close_origins(directory)
        connect_to_ray()
        head = head_address()
        signal.signal(signal.SIGTERM, termination)  # after Ray, which sets a handler of its own
        begin()
        with reporter:
            return _stages_of(spec)(directory, spec, attempt, tracking_uri, reporter)
    except Stopped:
        _stop(claim, tracking_uri, reporter)
    except JobCancelled:
        state = _stopped_state(directory, attempt)
        log.info("job_stopped", extra={"state": state})
        return _end(claim, tracking_uri, reporter, JobResult(state=state, attempt=attempt))
    except JobSuperseded:
        raise
    except Exception as error:
        if termination.has_come:
            log.info("stopped_within", extra={"reason": repr(error)[:300]})
            _stop(claim, tracking_uri, reporter)
        failure = describe_failure(error, reporter.current_stage, directory.storage_uri)
        if failure.code == "internal" and not failure.can_retry and is_head_gone(head):
            # Whatever it came out as: most of what runs on Ray fails in words of its own when Ray is gone.
            told = f"The head of the Ray cluster was lost. {failure.message}"
            failure = failure.model_copy(update={"message": told[:2000], "can_retry": True})
        log.log(
            logging.ERROR, "job_failed", extra={"failure": failure.model_dump()}, exc_info=failure.code == "internal"
        )
        return _end(claim, tracking_uri, reporter, JobResult(state="FAILED", attempt=attempt, failure=failure))


def _stages_of(spec: JobSpec) -> Callable[..., JobResult]:
    """What runs a kind of job; imported here, for each imports seconds of its own."""
    if isinstance(spec, FinetuneSpec):
        from pipelines.finetune import run_finetuning

        return run_finetuning
    if isinstance(spec, EvaluateSpec):
        from pipelines.evaluate import run_evaluation

        return run_evaluation
    if isinstance(spec, SearchSpec):
        from pipelines.search import run_search

        return run_search
    from pipelines.pretrain import run_pretraining

    return run_pretraining


class Stopped(BaseException):
    """SIGTERM came: Ray stops the job, and kills it three seconds later."""


class Termination:
    """What SIGTERM calls. It is remembered: raised in the midst of C code, `Stopped` can come out as another error."""

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, signal_number: int, frame: FrameType | None) -> None:
        """Raises:
        Stopped: always.
        """
        self.has_come = True
        raise Stopped


def _stop(claim: Claim, tracking_uri: str, reporter: ProgressReporter) -> NoReturn:
    """Leave without a word of the job: another attempt may go on with it. MLflow hears of the end from nobody else."""
    _end(claim, tracking_uri, reporter, JobResult(state="CANCELLED", attempt=claim.attempt))
    raise SystemExit(STOPPED_STATUS) from None


def _leave(error: JobSuperseded) -> None:
    """End this process at once, and with it, as Ray sees to, all it has started: another one writes where they do.

    Called beside the main thread, which may be waiting for workers.
    """
    log.warning("attempt_superseded", extra={"reason": str(error)})
    sys.stderr.flush()
    os._exit(SUPERSEDED_STATUS)


def _stopped_state(directory: JobDirectory, attempt: int) -> Literal["CANCELLED", "PAUSED"]:
    """What the job stopped for, read anew: a cancellation may have come after the wish to pause.

    Where it cannot be read the job is paused. The service, which knows what was wished, can still cancel it; of a
    cancelled job there would be no way back.
    """
    try:
        return "CANCELLED" if directory.read_wish(attempt) == "cancel" else "PAUSED"
    except (storage.StorageError, ValueError) as error:
        log.warning("control_unreadable", extra={"reason": str(error)[:300]})
        return "PAUSED"


def describe_failure(error: BaseException, stage: Stage, storage_uri: str) -> Failure:
    """What went wrong, for the user, and whether another attempt could end otherwise.

    Args:
        error: what ended the job.
        stage: where.
        storage_uri: root of our own files: if one of these is out of reach, the data are not to blame.
    """
    if is_out_of_memory(error):
        return Failure(stage=stage, code="out_of_memory", message=memory_message(error))
    match error:
        case ray.exceptions.RayTaskError() if isinstance(error.cause, Exception):
            return describe_failure(error.cause, stage, storage_uri)
        case SpecError():
            details = tuple(str(problem) for problem in error.problems)
            return Failure(stage=stage, code="spec", message=str(error), details=details)
        case CorpusError():
            return Failure(stage=stage, code="data", message=error.message, details=error.report)
        case storage.StorageError() if stage in ("prepare", "evaluate") and not error.uri.startswith(storage_uri):
            return Failure(stage=stage, code="data", message=str(error))
        case NonFiniteLossError():
            return Failure(stage=stage, code="non_finite_loss", message=str(error), step=error.step)
        case ResourceError():
            return Failure(stage=stage, code="resources", message=str(error))
        case CheckpointError():
            return Failure(stage=stage, code="checkpoint", message=str(error))
        case RecordError():
            return Failure(stage=stage, code="record", message=str(error), can_retry=error.can_retry)
        case ray.train.TrainingFailedError():
            message = f"training workers were lost more often than training.max_failures allows: {error}"
            is_lost = _all_lost(error)
            return Failure(stage=stage, code="internal", message=message[:2000], can_retry=is_lost)
        case ray.exceptions.RayError() | storage.StorageError() | ConnectionError() | TimeoutError():
            return Failure(stage=stage, code="internal", message=str(error)[:2000], can_retry=True)
        case _:
            message = f"{type(error).__name__}: {error}"
            return Failure(stage=stage, code="internal", message=message[:2000])


def _all_lost(error: Exception) -> bool:
    """Whether workers died rather than raised: then the machine was at fault and not the program."""
    causes = getattr(error, "worker_failures", {}).values()
    return any(isinstance(cause, ray.exceptions.RayError) or "died" in str(cause) for cause in causes)


def _end(claim: Claim, tracking_uri: str, reporter: ProgressReporter, result: JobResult) -> JobResult:
    """Complete a result that is not a success, and close its MLflow run, which cannot know of the end by itself.

    Raises:
        JobSuperseded: the run is another process's.
    """
    claim.guard()
    progress = reporter.fields
    run_id, experiment_id = progress.get("mlflow_run_id"), progress.get("mlflow_experiment_id")
    if run_id is not None:
        status = {"CANCELLED": "KILLED", "PAUSED": "SCHEDULED"}.get(result.state, "FAILED")
        tags = {"electra.failure": result.failure.message[:500]} if result.failure else {}
        try:
            tracking.end_run(RunIdentity(tracking_uri, str(experiment_id), str(run_id)), status, tags)
        except Exception as error:  # noqa: BLE001 - an unreachable MLflow must not hide why the job ended
            log.warning("mlflow_run_left_open", extra={"reason": str(error)[:300]})
    return result.model_copy(
        update={
            "step": result.step or progress.get("step"),
            "taken_over_step": progress.get("taken_over_step"),
            "finished_at": datetime.now(UTC),
            "mlflow_run_id": run_id,
            "mlflow_experiment_id": experiment_id,
        }
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pipelines.main", description="Run one job.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--job-uri", help="directory of a job whose spec.json lies there")
    source.add_argument("--spec", help="a spec file (YAML or JSON)")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--job-id", help="with --spec: continue or start this job (default: a new one)")
    parser.add_argument("--storage-uri", help=f"with --spec: default ${STORAGE_VARIABLE}, else {DEFAULT_STORAGE}")
    parser.add_argument("--attempt", type=int, help="default: the one that has the job's directory, or 1")
    return parser.parse_args(arguments)


def _open_directory(options: argparse.Namespace) -> JobDirectory:
    if options.job_uri:
        return JobDirectory(storage.normalise(options.job_uri))
    spec = load_spec(Path(options.spec).read_bytes(), options.overrides)
    root = options.storage_uri or os.environ.get(STORAGE_VARIABLE) or str(Path(DEFAULT_STORAGE).expanduser())
    job_id = options.job_id or f"{ID_PREFIXES[spec.kind]}-{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"
    directory = JobDirectory(storage.join(storage.normalise(root), "jobs", job_id))
    directory.write_spec(spec)
    return directory


def _write_result(claim: Claim, directory: JobDirectory, result: JobResult) -> None:
    """Say the last word, unless another process has the folder by now.

    Raises:
        JobSuperseded: it has.
        StorageError: it could not be said.
    """
    for attempt in range(1, RESULT_ATTEMPTS + 1):
        claim.guard()
        try:
            directory.write_result(result)
        except storage.StorageError as error:
            if attempt == RESULT_ATTEMPTS:
                raise
            log.warning("result_unwritten", extra={"reason": str(error)[:300]})
            time.sleep(2.0**attempt)
        else:
            return


def _model_names(result: JobResult) -> list[str]:
    return [f"{model.name}@{model.alias} (version {model.version})" for model in result.models]


if __name__ == "__main__":
    sys.exit(main())
