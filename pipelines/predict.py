"""Try a model: what the service and `electra predict` run.

    python -m pipelines.predict --uri URI        request.json lies there; answer.json is put beside it. Needs Ray.
    python -m pipelines.predict --model FOLDER   a PredictRequest as JSON on standard input; its answer is printed

Exit status 0: there is an answer; 1: there is none, and answer.json says why, or predicting with a folder failed in a
way that was not foreseen; 2: the request cannot be read, or the model of the folder cannot answer it. Texts are never
logged.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pipelines import storage
from pipelines.errors import PipelineError
from pipelines.specs.prediction import (
    ANSWER_FILE,
    REQUEST_FILE,
    PredictFailure,
    PredictJob,
    PredictOutcome,
    PredictRequest,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one request; see the module's docstring."""
    options = _parse(arguments)
    try:
        return _answer_stored(options.uri) if options.uri else _answer_printed(Path(options.model))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, item['loc'])) or 'request'}: {item['msg']}" for item in error.errors()]
        print(f"cannot predict: {'; '.join(faults)}", file=sys.stderr)
    except PipelineError as error:
        print(f"cannot predict: {error}", file=sys.stderr)
    return 2


def _answer_stored(uri: str) -> int:
    job = PredictJob.model_validate_json(storage.read_bytes(storage.join(uri, REQUEST_FILE)))
    outcome = _ask_ray(job, uri.rstrip("/").rpartition("/")[0].rpartition("/")[0])
    # Not by `write_json`, which sorts keys: probabilities keep the order of the model's outputs.
    storage.write_bytes(storage.join(uri, ANSWER_FILE), outcome.model_dump_json().encode())
    return 0 if outcome.answer is not None else 1


def _ask_ray(job: PredictJob, storage_uri: str) -> PredictOutcome:
    from pipelines.predicting.ray_task import predict_on_ray  # only here: a local folder needs no Ray
    from pipelines.surroundings import tracking_uri_of

    try:
        tracking_uri = tracking_uri_of(storage_uri)
    except (ValueError, OSError) as error:  # MLflow is not named: to ask again will not help
        return PredictOutcome(failure=PredictFailure(code="internal", message=str(error)))
    return predict_on_ray(job, tracking_uri)


def _answer_printed(folder: Path) -> int:
    request = PredictRequest.model_validate_json(sys.stdin.buffer.read())
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # After the environment, which Transformers reads.
    from pipelines.predicting.local import outcome_of, predict_with_folder

    outcome = outcome_of(lambda: predict_with_folder(folder.expanduser().absolute(), request.inputs))
    if outcome.answer is not None:
        # As bytes: JSON is UTF-8, whatever this process's locale has.
        sys.stdout.buffer.write(outcome.answer.model_dump_json().encode() + b"\n")
        sys.stdout.buffer.flush()
        return 0
    assert outcome.failure is not None
    told = f"{outcome.failure.field or ''} {outcome.failure.message}".lstrip()
    print(f"cannot predict: {told}", file=sys.stderr)
    return 1 if outcome.failure.code == "internal" else 2


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pipelines.predict", description="Try a model.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--uri", help="folder that holds request.json")
    source.add_argument("--model", help="folder of a model in the layout of Transformers")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
