"""Programs of ours that Ray runs for the service, and the names under which Ray knows them. Pure."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from service.records import submission_id

_PREDICTION_ID = re.compile(r"pr-([0-9a-f]{12})[0-9a-f]{10}")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One program, to be started once."""

    submission_id: str
    """Ray's name for it: a launch that reaches Ray twice is started once."""
    module: str
    """Run with `python -m`."""
    arguments: tuple[str, ...]
    """They stand in a shell command: URIs and numbers of the service's own making, and nothing that a user wrote."""
    metadata: Mapping[str, str]
    """Shown in Ray's dashboard."""


JOB_ID, ATTEMPT, JOB_URI, PROJECT, OWNER = (
    f"electra.{name}" for name in ("job_id", "attempt", "job_uri", "project", "owner")
)
"""What Ray is told of an attempt: in its dashboard people see whose it is, and a service whose database is of before
the attempt finds it.
"""


def attempt_launch(
    job_uri: str, job_id: str, attempt: int, *, project: str = "default", owner: str = "local"
) -> Launch:
    """An attempt of a job whose spec lies in its folder."""
    return Launch(
        submission_id=submission_id(job_id, attempt),
        module="pipelines.main",
        arguments=("--job-uri", job_uri, "--attempt", str(attempt)),
        metadata={JOB_ID: job_id, ATTEMPT: str(attempt), JOB_URI: job_uri, PROJECT: project, OWNER: owner},
    )


def prediction_launch(prediction_uri: str, prediction_id: str) -> Launch:
    """A prediction whose request lies in its folder."""
    return Launch(
        submission_id=prediction_id,
        module="pipelines.predict",
        arguments=("--uri", prediction_uri),
        metadata={"electra.prediction_id": prediction_id},
    )


def new_prediction_id() -> str:
    """The time in milliseconds and 40 random bits, as of a job."""
    return f"pr-{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"


def asked_at(prediction_id: str) -> float | None:
    """When a prediction got its name, in seconds since 1970; None of a name that is no prediction's."""
    found = _PREDICTION_ID.fullmatch(prediction_id)
    return None if found is None else int(found[1], 16) / 1000
