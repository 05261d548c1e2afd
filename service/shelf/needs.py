"""What jobs still need of the storage, as the table of jobs says at this moment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pipelines import storage
from pipelines.specs.search import SearchSpec
from pipelines.specs.trials import base_spec
from service.access.places import canonical, is_within, static_part
from service.interfaces import JobFilter, JobFolders, JobStore
from service.jobs.references import places
from service.jobs.work import read_stored_spec
from service.records import Job
from service.settings import Settings
from service.states import TERMINAL_STATES, JobState

_UNFINISHED = [state for state in JobState if state not in TERMINAL_STATES]
_PAGE = 500
MAX_RETRIES = 100
"""Jobs that are followed back, one the retry of the other; as many as a job itself looks through."""
KINDS_WITH_CORPUS = ("pretrain", "search")


class Needs:
    """A look at all jobs that are not over. Taken anew for every deletion: a job may have come since the last."""

    def __init__(self, store: JobStore, folders: JobFolders, settings: Settings) -> None:
        self._store = store
        self._folders = folders
        self._settings = settings
        self.jobs = _unfinished(store)

    def of_prepared(self, uses: Mapping[str, datetime]) -> str | None:
        """Why a prepared artifact with these users has to stay; None where no job needs it.

        Args:
            uses: ids of jobs that noted that they use it.
        """
        known = {job_id: self._store.get(job_id) for job_id in uses}
        for job_id, job in known.items():
            if job is not None and job.state not in TERMINAL_STATES:
                return f"{job_id} uses it and is {job.state}"
            if job is None and not self._is_over(job_id):
                return f"{job_id} uses it, is no job of this service's database, and has left no result"
        texts = {_corpus_section(job) for job in known.values() if job is not None} - {None}
        for job in self.jobs:
            if job.kind not in KINDS_WITH_CORPUS:
                continue
            section = _corpus_section(job)
            if section is None:
                return _unread(job)
            if section in texts:
                return f"{job.job_id} is {job.state} and has the same corpus section"
        return None

    def of_silent_jobs(self, noted: Iterable[str]) -> str | None:
        """A job that has begun, and stands in no artifact's notes: it may use any.

        So it is with a job that has just started, and with one whose image is older than the notes.

        Args:
            noted: ids of all jobs that noted a use of some corpus.
        """
        noted = set(noted)
        for job in self.jobs:
            if job.kind in KINDS_WITH_CORPUS and job.attempt and job.job_id not in noted:
                return f"{job.job_id} is {job.state} and has not said which corpus it uses"
        return None

    def of_job(self, job_id: str) -> str | None:
        """Why the folder of a job that is over has to stay whole; None where no job needs it."""
        folder = canonical(storage.normalise(self._settings.job_uri(job_id)))
        for job in self.jobs:
            if job_id in self._retried_by(job):
                return f"{job.job_id} is {job.state} and goes on with its work"
            uris = _uris(job)
            if uris is None:
                return _unread(job)
            if any(_lies_within(uri, folder) for uri in uris):
                return f"{job.job_id} is {job.state} and reads from it"
        return None

    def _retried_by(self, job: Job) -> list[str]:
        found: list[str] = []
        origin = job.retry_of
        while origin is not None and origin not in found and len(found) < MAX_RETRIES:
            found.append(origin)
            before = self._store.get(origin)
            origin = None if before is None else before.retry_of
        return found

    def _is_over(self, job_id: str) -> bool:
        """Of a job that was submitted past the service."""
        result = self._folders.read_result(job_id)
        return result is not None and result.state != "PAUSED"


def _unfinished(store: JobStore) -> list[Job]:
    found: list[Job] = []
    before = None
    while True:
        page = store.page(JobFilter(states=_UNFINISHED, is_archived=None, before=before, limit=_PAGE))
        found += page
        if len(page) < _PAGE:
            return found
        before = (page[-1].created_at, page[-1].job_id)


def _corpus_section(job: Job) -> str | None:
    """The words that decide a job's text, so that two can be compared; None where they cannot be read."""
    try:
        spec = read_stored_spec(job.spec_json)
    except ValueError:
        return None
    section: Any = getattr(base_spec(spec) if isinstance(spec, SearchSpec) else spec, "corpus", None)
    return None if section is None else json.dumps(section.model_dump(mode="json"), sort_keys=True)


def _uris(job: Job) -> list[str] | None:
    """What a job reads; None where its spec cannot be read, as that of a later version's service."""
    try:
        return [place.uri for place in places(read_stored_spec(job.spec_json))]
    except ValueError:
        return None


def _unread(job: Job) -> str:
    return f"{job.job_id} is {job.state}, and its spec cannot be read: it may need anything"


def _lies_within(uri: str, folder: str) -> bool:
    try:
        place = canonical(static_part(storage.normalise(uri)))
    except (ValueError, storage.StorageError):
        return False
    return is_within(place, folder) or is_within(folder, place)
