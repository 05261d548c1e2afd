"""The part of a cleaning that looks at the folders of jobs: checkpoints, and what is left of archived jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

from pipelines.specs.documents import RESULT_FILE
from pipelines.storage.artifacts import MANIFEST_FILE
from pipelines.storage.uses import StoredFile, list_files
from service.errors import RegistryUnavailableError
from service.records import Job
from service.shelf.clean_records import CleanedItem, CleanedKind
from service.shelf.registry import RegisteredVersion
from service.shelf.sweeping import Candidate, Sweeper

_CHECKPOINT = re.compile(r"step_([0-9]+)")
_MARKERS = ("evaluation.json", RESULT_FILE, MANIFEST_FILE, "config.json")
"""Files by which something in a job's folder is complete."""

_CHECKPOINT_KIND: CleanedKind = "checkpoint"

MadeBy = Callable[[Job], RegisteredVersion | None]


def clean_jobs(sweeper: Sweeper, made_by: MadeBy) -> Iterator[CleanedItem]:
    """Delete folders of archived jobs, and old checkpoints of the other jobs that are over.

    Args:
        sweeper: knows the rules.
        made_by: a registered version that a job has made; may raise `RegistryUnavailableError`.

    Raises:
        StorageError: the storage cannot be listed.
    """
    wish = sweeper.wish
    for job_id in sweeper.names_in("jobs"):
        job = sweeper.store.get(job_id)
        if job is None or not job.state.is_terminal:
            continue  # of a job that is not over, and of one we do not know, nothing is looked at
        if wish.archived_jobs_days is not None and job.is_archived:
            item = _clean_folder(sweeper, job, wish.archived_jobs_days, made_by)
            yield item
            if item.outcome in ("deleted", "would_delete"):
                continue
        if wish.checkpoints_to_keep is not None:
            yield from _clean_checkpoints(sweeper, job, wish.checkpoints_to_keep)


def _clean_folder(sweeper: Sweeper, job: Job, days: float, made_by: MadeBy) -> CleanedItem:
    path = f"jobs/{job.job_id}"
    files = list_files(sweeper.uri(path))
    size = sum(file.size_bytes for file in files)
    ended = job.finished_at or job.created_at
    if sweeper.now - ended < timedelta(days=days):
        return sweeper.kept("job_folder", path, size, f"the job ended on {ended:%Y-%m-%d}")
    reason = _still_registered(job, made_by)
    if reason is not None:
        return sweeper.kept("job_folder", path, size, reason)
    markers = tuple(file.path for file in files if file.path.rpartition("/")[2] in _MARKERS)
    candidate = Candidate("job_folder", path, size, f"the job is archived and ended on {ended:%Y-%m-%d}", markers)

    def need() -> str | None:
        now = sweeper.store.get(job.job_id)
        if now is None or not now.is_archived:
            return "the job is no longer archived"
        return sweeper.needs().of_job(job.job_id) or _still_registered(job, made_by)

    return sweeper.sweep(candidate, need)


def _still_registered(job: Job, made_by: MadeBy) -> str | None:
    """Lineage and downloads of a registered version read its job's folder."""
    try:
        found = made_by(job)
    except RegistryUnavailableError as error:
        return f"whether its models are registered cannot be told: {error.detail}"
    return None if found is None else f"{found.name} version {found.version} is registered"


def _clean_checkpoints(sweeper: Sweeper, job: Job, keep: int) -> Iterator[CleanedItem]:
    """All but the newest; and what was written of others before they were whole."""
    steps = sorted(
        (int(found[1]), name)
        for name in sweeper.names_in(f"jobs/{job.job_id}/checkpoints")
        if (found := _CHECKPOINT.fullmatch(name)) is not None
    )
    folders = [(name, list_files(sweeper.uri(_path(job, name)))) for _, name in steps]
    whole = [name for name, files in folders if _is_whole(files)]
    newest = set(whole[len(whole) - min(keep, len(whole)) :])
    for name, files in folders:
        size = sum(file.size_bytes for file in files)
        if name in newest:
            yield sweeper.kept(_CHECKPOINT_KIND, _path(job, name), size, f"it is one of the newest {keep}")
            continue
        why, kind = f"the job is {job.state}, and there are newer ones", _CHECKPOINT_KIND
        if name in whole and not newest:
            why = f"the job is {job.state}"
        if name not in whole:
            why, kind = "it was never finished", "leftover"
        candidate = Candidate(kind, _path(job, name), size, why, (MANIFEST_FILE,))
        yield sweeper.sweep(candidate, lambda: sweeper.needs().of_job(job.job_id))


def _path(job: Job, checkpoint: str) -> str:
    return f"jobs/{job.job_id}/checkpoints/{checkpoint}"


def _is_whole(files: tuple[StoredFile, ...]) -> bool:
    return any(file.path == MANIFEST_FILE for file in files)
