"""The part of a cleaning that looks at prepared corpora and cleaned texts."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from pipelines.errors import ResourceError
from pipelines.storage.artifacts import MANIFEST_FILE
from pipelines.storage.lease import lease
from pipelines.storage.uses import ArtifactFolder, is_disposable, look_at
from service.interfaces import JobFilter
from service.shelf.clean_records import CleanedItem, CleanedKind
from service.shelf.corpora import CorpusUse, last_use
from service.shelf.needs import KINDS_WITH_CORPUS
from service.shelf.sweeping import Candidate, Sweeper

_FOLDERS: Mapping[str, CleanedKind] = {"corpora": "corpus", "texts": "texts"}
_PAGE = 500


def clean_prepared(sweeper: Sweeper, unused_days: float) -> Iterator[CleanedItem]:
    """Delete what no job used for so long, and what a job that died left half made.

    Raises:
        StorageError: the storage cannot be listed.
    """
    found = [(name, digest, look_at(sweeper.uri(f"{name}/{digest}"))) for name in _FOLDERS
             for digest in sweeper.names_in(name)]  # fmt: skip
    noted = {job_id for name, _, folder in found if name == "corpora" for job_id in folder.uses}
    by_result = _uses_by_result(sweeper)
    for name, digest, folder in found:
        uses = {**by_result.get(digest, {}), **folder.uses} if name == "corpora" else dict(folder.uses)
        yield from _clean_one(sweeper, name, digest, folder, uses, noted, unused_days)


def _clean_one(
    sweeper: Sweeper,
    name: str,
    digest: str,
    folder: ArtifactFolder,
    uses: dict[str, datetime],
    noted: set[str],
    unused_days: float,
) -> Iterator[CleanedItem]:
    path = f"{name}/{digest}"
    disposable = tuple(file.path for file in folder.files if is_disposable(file.path) and file.path != MANIFEST_FILE)
    if folder.completed_at is None and not disposable:
        return  # nothing but notes: it was deleted before
    why, markers = "it was never finished", ()
    if folder.completed_at is not None:
        last = last_use(folder, _known(sweeper, uses))
        if sweeper.now - last < timedelta(days=unused_days):
            yield sweeper.kept(_FOLDERS[name], path, folder.size_bytes, f"it was last used on {last:%Y-%m-%d}")
            return
        why, markers = f"no job has used it since {last:%Y-%m-%d}", (MANIFEST_FILE,)

    def need() -> str | None:
        # The notes are read before the jobs: whoever notes a use is in the table already.
        now = uses | look_at(sweeper.uri(path)).uses
        needs = sweeper.needs()
        return needs.of_prepared(now) or needs.of_silent_jobs(noted | now.keys())

    kind = _FOLDERS[name] if markers else "leftover"
    candidate = Candidate(kind, path, folder.size_bytes, why, markers, disposable)
    if sweeper.wish.dry_run:
        yield sweeper.sweep(candidate, need)
        return
    try:
        # Whoever writes the artifact holds this; one try, for it is theirs as long as they live.
        lease_uri = sweeper.uri(f"leases/{name}-{digest}.json")
        with lease(lease_uri, f"cleaning-{uuid.uuid4().hex}", lambda: False, timeout_seconds=0.0, poll_seconds=0.0):
            yield sweeper.sweep(candidate, need)
    except ResourceError:
        yield sweeper.kept(candidate.kind, path, folder.size_bytes, "a job is making it now")


def _known(sweeper: Sweeper, uses: Mapping[str, datetime]) -> list[CorpusUse]:
    jobs = ((sweeper.store.get(job_id), at) for job_id, at in uses.items())
    return [CorpusUse(job, at) for job, at in jobs if job is not None]


def _uses_by_result(sweeper: Sweeper) -> dict[str, dict[str, datetime]]:
    """By digest the jobs whose result names it: those of before there were notes too."""
    found: dict[str, dict[str, datetime]] = {}
    for kind in KINDS_WITH_CORPUS:
        before = None
        while True:
            page = sweeper.store.page(JobFilter(kind=kind, is_archived=None, before=before, limit=_PAGE))
            for job in page:
                digest = None if job.result is None else job.result.corpus.get("digest")
                if isinstance(digest, str):
                    found.setdefault(digest, {})[job.job_id] = job.started_at or job.created_at
            if len(page) < _PAGE:
                break
            before = (page[-1].created_at, page[-1].job_id)
    return found
