"""The queue's twin in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from service_doubles import MemoryJobStore

from service.access.audit import AuditEntry
from service.interfaces import QueueStore
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.queueing.records import QuotaException, Scope, Wait
from service.queueing.shares import Usage
from service.records import Job
from service.states import ACTIVE_STATES, JobState


def queue_of(store: Any) -> QueueStore:
    """The queue over the same jobs."""
    return SqlQueueStore(store._engine) if isinstance(store, SqlJobStore) else MemoryQueueStore(store)


class MemoryQueueStore:
    """`QueueStore` over a `MemoryJobStore`, which keeps what it is told."""

    def __init__(self, store: MemoryJobStore) -> None:
        self._store = store

    def list_queue(self, per_kind: int, limit: int) -> list[Job]:
        kinds: Counter[tuple[object, ...]] = Counter()
        placed: list[tuple[int, Job]] = []
        for job in self._store.list_queued(10**6):
            kind = (job.owner, job.project, job.priority, job.demand or job.spec_sha256)
            kinds[kind] += 1
            if kinds[kind] <= per_kind:
                placed.append((kinds[kind], job))
        placed.sort(key=lambda one: one[0])
        return _by_turns([job for _, job in placed], limit)

    def list_waiting(self, per_owner: int, limit: int, projects: frozenset[str] | None) -> list[Job]:
        found = [job for job in self._store.list_queued(10**6) if projects is None or job.project in projects]
        found.sort(key=lambda job: (job.queue_position is None, job.queue_position or 0))
        counts: Counter[str] = Counter()
        for job in list(found):
            counts[job.owner] += 1
            if counts[job.owner] > per_owner:
                found.remove(job)
        return _by_turns(found, limit)

    def list_active(self) -> list[Job]:
        return [job for job in self._store._sorted() if job.state in ACTIVE_STATES]

    def save_waits(self, waits: Sequence[Wait]) -> None:
        for one in waits:
            job = self._store.jobs[one.job_id]
            if job.state is JobState.QUEUED:
                said = {"waiting_reason": one.reason.value, "waiting_message": one.message}
                self._store.jobs[one.job_id] = replace(job, queue_position=one.position, **said)  # type: ignore[arg-type]

    def usages(self) -> Mapping[str, Usage]:
        return dict(self._store.usages)

    def save_usages(self, usages: Sequence[Usage]) -> None:
        self._store.usages.update({usage.owner: usage for usage in usages})

    def list_quotas(self) -> Sequence[QuotaException]:
        return sorted(self._store.quotas.values(), key=lambda one: (one.scope, one.name))

    def find_quota(self, scope: Scope, name: str) -> QuotaException | None:
        return self._store.quotas.get((scope, name))

    def put_quota(self, exception: QuotaException, audit: AuditEntry) -> None:
        self._store.quotas[exception.scope, exception.name] = exception

    def delete_quota(self, scope: Scope, name: str, audit: AuditEntry) -> bool:
        return self._store.quotas.pop((scope, name), None) is not None

    def waiting_figures(self) -> Mapping[str, tuple[int, datetime]]:
        figures: dict[str, tuple[int, datetime]] = {}
        for job in self._store.jobs.values():
            if job.state is JobState.QUEUED:
                reason, since = job.waiting_reason or "behind", job.queued_at or job.created_at
                count, first = figures.get(reason, (0, since))
                figures[reason] = (count + 1, min(first, since))
        return figures


def _by_turns(jobs: Sequence[Job], limit: int) -> list[Job]:
    turns: Counter[str] = Counter()
    numbered = []
    for job in jobs:
        turns[job.owner] += 1
        numbered.append((turns[job.owner], -job.priority, job.created_at, job.job_id, job))
    return [one[-1] for one in sorted(numbered, key=lambda one: one[:4])][:limit]
