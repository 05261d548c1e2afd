"""Jobs that came by `ray job submit` tell a service over the same storage that they are there.

The service never asks Ray for jobs that are not its own: of those it would know neither folder nor spec. And a job
never calls the service, which may not be there at all. So a job leaves word where the service looks.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.specs.documents import ANNOUNCED_FOLDER, Announcement

log = logging.getLogger(__name__)

CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where Ray (2.60) tells a program that it runs for a submission what that is, in JSON."""


def announce(directory: JobDirectory, attempt: int) -> None:
    """Leave word of an attempt that Ray runs; nothing where no Ray runs it, for nobody could look after it then.

    A job that cannot be announced runs all the same.
    """
    submission = own_submission()
    if submission is None:
        return
    try:
        word = Announcement(
            job_id=directory.job_id, attempt=attempt, submission_id=submission, began_at=datetime.now(UTC)
        )
        uri = storage.join(directory.storage_uri, ANNOUNCED_FOLDER, f"{word.job_id}.json")
        storage.write_bytes(uri, word.model_dump_json().encode())
    except (storage.StorageError, OSError, ValueError) as error:
        log.warning("job_not_announced", extra={"reason": str(error)[:300]})


def own_submission() -> str | None:
    """Ray's name for this process's job; None where Ray did not start it."""
    try:
        name = json.loads(os.environ.get(CONFIG_VARIABLE, "{}"))["metadata"]["job_submission_id"]
    except (ValueError, TypeError, KeyError):
        return None
    return name if isinstance(name, str) else None
