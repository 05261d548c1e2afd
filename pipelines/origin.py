"""A job that goes on with another one's work takes over copies of it: the old folder stays, and may be deleted.

The old job is named in `origin.json` by its id alone, so that nothing outside the storage of jobs can be meant.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator

from pipelines import storage
from pipelines.claims import Claim
from pipelines.errors import CheckpointError
from pipelines.job import JobDirectory
from pipelines.specs.documents import TAKEN_OVER_FILE, TakenOver
from pipelines.training.checkpoint import Checkpoint, list_checkpoints, read_state

log = logging.getLogger(__name__)

MAX_ORIGINS = 100
"""Jobs that are looked through, one the retry of the other."""
CLOSED_ATTEMPT = 2**31 - 1
"""Holds the folder of a job that is over and that another one goes on with."""
MAX_LOOKS = 3
"""At the checkpoints of a job that still deletes some while they are copied."""
_COPY_BYTES = 8 << 20


def origins(directory: JobDirectory) -> Iterator[JobDirectory]:
    """The folders of the job that this one is a retry of, of the one that that was a retry of, and so on."""
    seen = {directory.job_id}
    while len(seen) <= MAX_ORIGINS:
        origin = directory.read_origin()
        if origin is None or origin.job_id in seen:
            return
        seen.add(origin.job_id)
        directory = JobDirectory(storage.join(directory.storage_uri, "jobs", origin.job_id))
        yield directory


def close_origins(directory: JobDirectory) -> None:
    """See to it that nobody writes in the folders of a job's origins any more: an attempt of theirs that still runs,
    thought lost, finds its folder held by another and leaves.
    """
    for origin in origins(directory):
        try:
            if origin.read_attempt():  # else nothing has begun there, or all was deleted
                Claim(origin.uri, CLOSED_ATTEMPT).hold()
        except (storage.StorageError, ValueError) as error:
            log.warning("origin_not_closed", extra={"job_id": origin.job_id, "reason": str(error)[:300]})


def take_over_checkpoint(directory: JobDirectory, identity: str) -> int | None:
    """Copy the newest sound checkpoint of the job's origins, unless the job has one itself.

    Args:
        directory: of the job.
        identity: of its training; checkpoints of another spec are passed over.

    Returns:
        The step taken over, or None where there is nothing to take.

    Raises:
        StorageError: the storage does not answer.
    """
    if list_checkpoints(directory.path("checkpoints")):
        return None
    for origin in origins(directory):
        for look in range(MAX_LOOKS):
            try:
                step = _take_newest(origin, directory, identity)
            except storage.StorageError:
                # An attempt thought lost may be on its way out yet, and delete old checkpoints as it writes new ones.
                if look + 1 == MAX_LOOKS:
                    raise
                continue
            if step is not None:
                return step
            break
    return None


def taken_over_step(directory: JobDirectory) -> int | None:
    """The step with which a retry began; None where it took nothing over.

    Raises:
        StorageError: the storage does not answer.
    """
    if not storage.exists(directory.path(TAKEN_OVER_FILE)):
        return None
    return TakenOver.model_validate(storage.read_json(directory.path(TAKEN_OVER_FILE))).step


def _take_newest(origin: JobDirectory, directory: JobDirectory, identity: str) -> int | None:
    """Copy the newest sound checkpoint of one job to another."""
    for checkpoint in reversed(list_checkpoints(origin.path("checkpoints"))):
        manifest = storage.read_json(storage.join(checkpoint.uri, "manifest.json"))
        if manifest.get("identity") != identity:
            extra = {"uri": checkpoint.uri, "reason": "it was written by another spec or corpus"}
            log.warning("checkpoint_not_taken_over", extra=extra)
            continue
        if not _is_sound(checkpoint):
            continue
        target = directory.path("checkpoints", checkpoint.uri.rstrip("/").rpartition("/")[2])
        _copy(storage.join(checkpoint.uri, "state.pt"), storage.join(target, "state.pt"))
        taken = TakenOver(job_id=origin.job_id, step=checkpoint.step)
        storage.write_json(directory.path(TAKEN_OVER_FILE), taken.model_dump(mode="json"))
        storage.write_json(storage.join(target, "manifest.json"), manifest)  # last: it is whole from now on
        log.info("checkpoint_taken_over", extra={"step": checkpoint.step, "uri": checkpoint.uri})
        return checkpoint.step
    return None


def take_over_folder(directory: JobDirectory, origin: JobDirectory, *parts: str, last: str) -> None:
    """Copy a finished folder of an origin to the same place below this job.

    Args:
        directory: of the job.
        origin: whose folder it is.
        parts: the folder's place below either.
        last: the file by which the folder is complete; copied after all others.

    Raises:
        StorageError: the storage does not answer.
    """
    source = origin.path(*parts)
    names = sorted(file.uri.rpartition("/")[2] for file in storage.expand(source) if _is_directly_in(source, file.uri))
    for name in sorted(names, key=lambda name: name == last):
        _copy(storage.join(source, name), directory.path(*parts, name))


def _is_directly_in(folder: str, uri: str) -> bool:
    return uri.rpartition("/")[0] == folder.rstrip("/")


def _is_sound(checkpoint: Checkpoint) -> bool:
    try:
        read_state(checkpoint)
    except CheckpointError as error:
        log.warning("checkpoint_skipped", extra={"uri": checkpoint.uri, "reason": str(error)})
        return False
    return True


def _copy(source: str, target: str) -> None:
    with storage.open_input(source) as stream, storage.open_output(target) as output:
        shutil.copyfileobj(stream, output, _COPY_BYTES)
