"""Registered models as the service knows them, and what keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

JOB_TAG = "electra.job_id"
NETWORK_TAG = "electra.network"


@dataclass(frozen=True, kw_only=True)
class RegisteredModel:
    """A name with versions."""

    name: str
    created_at: datetime
    updated_at: datetime
    description: str = ""
    aliases: Mapping[str, int] = field(default_factory=dict)
    """To version."""


@dataclass(frozen=True, kw_only=True)
class RegisteredVersion:
    """One version of a model."""

    name: str
    version: int
    created_at: datetime
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    run_id: str | None = None

    @property
    def job_id(self) -> str | None:
        """Of the job that made it, by its own word."""
        return self.tags.get(JOB_TAG)


class Registry(Protocol):
    """MLflow's registry. Every method may raise `RegistryUnavailableError`; what is not there is None."""

    def search_models(self, prefix: str, token: str | None, limit: int) -> tuple[list[RegisteredModel], str | None]:
        """Models whose names begin so, by name, and the token of the next page."""

    def model(self, name: str) -> RegisteredModel | None:
        """One model."""

    def search_versions(self, name: str, token: str | None, limit: int) -> tuple[list[RegisteredVersion], str | None]:
        """Versions of a model, the newest first, and the token of the next page."""

    def version(self, name: str, version: int) -> RegisteredVersion | None:
        """One version."""

    def version_of_job(self, job_id: str) -> RegisteredVersion | None:
        """A version that names a job as its maker."""

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Let an alias name a version. Raises `ModelNotFoundError` where it is not there."""

    def delete_alias(self, name: str, alias: str) -> None:
        """Let an alias name nothing."""

    def close(self) -> None:
        """Let go of all connections."""


class Locks(Protocol):
    """One at a time over all replicas."""

    def holding(self, name: str, patience_seconds: float, seconds: float = 60.0) -> AbstractContextManager[bool]:
        """Hold a lock for the block; False where others kept it for all of the patience. After `seconds` it is free
        even where its holder has not said so.
        """
