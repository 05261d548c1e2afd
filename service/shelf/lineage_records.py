"""Where a version comes from, as records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from service.shelf.usage import AttemptTimes
from service.states import JobState


@dataclass(frozen=True, kw_only=True)
class JobNode:
    """The job that made a version."""

    job_id: str
    name: str
    kind: str
    state: JobState
    project: str
    owner: str
    spec_sha256: str
    created_at: datetime
    finished_at: datetime | None
    retry_of: str | None
    clone_of: str | None
    attempts: Sequence[AttemptTimes]


@dataclass(frozen=True, kw_only=True)
class CorpusNode:
    """What it was trained on."""

    digest: str
    is_stored: bool
    figures: Mapping[str, int | float | str]
    sources: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Parent:
    """Weights that the job began with: a registered model, or files."""

    field: str
    name: str | None = None
    version: int | None = None
    uri: str | None = None
    lineage: Lineage | None = None


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """A version, and what it was made of."""

    name: str
    version: int
    network: str | None
    task: str | None
    mlflow_run_id: str | None
    job: JobNode | None
    corpus: CorpusNode | None
    parents: Sequence[Parent] = field(default_factory=tuple)
