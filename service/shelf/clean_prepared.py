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
    found = [_Prepared(sweeper, name, digest) for name in _FOLDERS for digest in sweeper.names_in(name)]
    noted = {job_id for one in found if one.name == "corpora" for job_id in one.folder.uses}
    by_result = _uses_by_result(sweeper)
    for one in found:
        others = by_result.get(one.digest, {}) if one.name == "corpora" else {}
        item = _clean_one(one, others, noted, unused_days)
        if item is not None:
            yield item


class _Prepared:
    """A corpus or texts, as the last look found them."""

    def __init__(self, sweeper: Sweeper, name: str, digest: str) -> None:
        self.sweeper = sweeper
        self.name = name
        self.digest = digest
        self.path = f"{name}/{digest}"
        self.folder = self.look()

    def look(self) -> ArtifactFolder:
        """Look again."""
        self.folder = look_at(self.sweeper.uri(self.path))
        return self.folder

    def candidate(self, uses: Mapping[str, datetime], unused_days: float) -> Candidate | CleanedItem | None:
        """What may go of it, or why it stays; None where there is nothing but notes: it was deleted before."""
        files = [file.path for file in self.folder.files if is_disposable(file.path)]
        others = tuple(path for path in files if path != MANIFEST_FILE)
        kind, size = _FOLDERS[self.name], self.folder.size_bytes
        if self.folder.completed_at is None:
            why = "it was never finished"
            return Candidate("leftover", self.path, size, why, (MANIFEST_FILE,), others) if others else None
        last = last_use(self.folder, _known(self.sweeper, {**uses, **self.folder.uses}))
        if self.sweeper.now - last < timedelta(days=unused_days):
            return self.sweeper.kept(kind, self.path, size, f"it was last used on {last:%Y-%m-%d}")
        why = f"no job has used it since {last:%Y-%m-%d}"
        return Candidate(kind, self.path, size, why, (MANIFEST_FILE,), others)


def _clean_one(
    one: _Prepared, others: Mapping[str, datetime], noted: set[str], unused_days: float
) -> CleanedItem | None:
    sweeper = one.sweeper

    def need() -> str | None:
        # The notes are read before the jobs: whoever notes a use is in the table already.
        uses = {**others, **one.look().uses}
        needs = sweeper.needs()
        return needs.of_prepared(uses) or needs.of_silent_jobs(noted | uses.keys())

    candidate = one.candidate(others, unused_days)
    if not isinstance(candidate, Candidate) or sweeper.wish.dry_run:
        return sweeper.sweep(candidate, need) if isinstance(candidate, Candidate) else candidate
    try:
        # Whoever writes the artifact holds this; one try, for it is theirs as long as they live.
        lease_uri = sweeper.uri(f"leases/{one.name}-{one.digest}.json")
        with lease(lease_uri, f"cleaning-{uuid.uuid4().hex}", lambda: False, timeout_seconds=0.0, poll_seconds=0.0):
            one.look()  # it may have been finished since it was listed
            now = one.candidate(others, unused_days)
            return sweeper.sweep(now, need) if isinstance(now, Candidate) else now
    except ResourceError:
        return sweeper.kept(candidate.kind, one.path, candidate.size_bytes, "a job is making it now")


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
