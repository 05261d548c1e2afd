"""All that stands behind the routes of models, corpora, cleaning and usage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.access.audit import AuditEntry
from service.interfaces import JobFolders, JobStore
from service.settings import Settings
from service.shelf.cleaning import Cleaning
from service.shelf.corpora import Corpora
from service.shelf.exports import Exports
from service.shelf.lineage import Lineages
from service.shelf.models import Models
from service.shelf.registry import Locks, Registry
from service.shelf.usage import UsageStore


@dataclass(frozen=True)
class Shelf:
    """What is kept of jobs, and what it took to make it."""

    models: Models
    exports: Exports
    lineages: Lineages
    corpora: Corpora
    cleaning: Cleaning
    usage: UsageStore


def make_shelf(
    settings: Settings,
    *,
    jobs: JobStore,
    folders: JobFolders,
    registry: Registry,
    locks: Locks,
    usage: UsageStore,
    record: Callable[[AuditEntry], None],
) -> Shelf:
    """Put the parts together; `record` adds a row to the audit log."""
    models = Models(registry, locks, record)
    exports = Exports(jobs, folders, settings)
    return Shelf(
        models=models,
        exports=exports,
        lineages=Lineages(models, exports, usage, settings),
        corpora=Corpora(jobs, settings),
        cleaning=Cleaning(jobs, folders, models, settings, locks, record),
        usage=usage,
    )
