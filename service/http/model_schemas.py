"""The words of registered models over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from service.access.principals import ProjectName
from service.http.schemas import Answer, Request
from service.shelf.lineage_records import Lineage
from service.shelf.registry import NETWORK_TAG, RegisteredModel, RegisteredVersion
from service.states import JobState

MAX_VERSION = 2**31 - 1
Version = Annotated[int, Field(ge=1, le=MAX_VERSION)]


class ModelQuery(Request):
    """Which registered models to list, by name."""

    project: ProjectName | None = None
    """Of the projects that the principal sees, this one alone."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    """Models a page."""
    cursor: Annotated[str, Field(max_length=1000)] | None = None
    """`next_cursor` of the page before."""


class VersionQuery(Request):
    """Which versions to list, newest first."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    """Versions a page."""
    cursor: Annotated[str, Field(max_length=1000)] | None = None
    """`next_cursor` of the page before."""


class AliasQuery(Request):
    """What must be so for an alias to move."""

    expected_version: Annotated[int, Field(ge=0, le=MAX_VERSION)] | None = None
    """The version that it names now, 0 where there is no such alias; nothing is changed otherwise."""


class AliasMove(Request):
    """Where an alias goes."""

    version: Version


class ModelPublic(Answer):
    """A registered model."""

    name: str
    project: str
    created_at: AwareDatetime
    updated_at: AwareDatetime
    description: str
    aliases: dict[str, int]
    """Alias to version."""

    @classmethod
    def from_model(cls, model: RegisteredModel) -> ModelPublic:
        """The public view."""
        from service.jobs.namespaces import project_of  # all words of specs come with it, and a client needs none

        values = {name: getattr(model, name) for name in cls.model_fields if name not in ("project", "aliases")}
        return cls(**values, project=project_of(model.name), aliases=dict(sorted(model.aliases.items())))


class ModelPage(Answer):
    """Some models, by name."""

    items: tuple[ModelPublic, ...]
    next_cursor: str | None = None
    """Give it as `cursor` for the models after these; absent at the end. A short or empty page may have one."""


class VersionPublic(Answer):
    """One version of a registered model."""

    name: str
    version: int
    created_at: AwareDatetime
    network: str | None
    """`discriminator`, `generator`, `encoder` or `finetuned`; absent where no job of ours made it."""
    job_id: str | None
    """Of the job that made it, as MLflow has it."""
    mlflow_run_id: str | None
    description: str
    """The model card, Markdown."""
    tags: dict[str, str]

    @classmethod
    def from_version(cls, version: RegisteredVersion) -> VersionPublic:
        """The public view."""
        return cls(**_version_fields(version))


class VersionDetail(VersionPublic):
    """A version with the aliases that name it."""

    aliases: tuple[str, ...]

    @classmethod
    def made(cls, version: RegisteredVersion, aliases: tuple[str, ...]) -> VersionDetail:
        """The public view."""
        return cls(**_version_fields(version), aliases=aliases)


class VersionPage(Answer):
    """Some versions, newest first."""

    items: tuple[VersionPublic, ...]
    next_cursor: str | None = None
    """Give it as `cursor` for the versions after these; absent at the end."""


class AliasMoved(Answer):
    """What became of an alias."""

    name: str
    alias: str
    before: int | None
    """The version that it named; absent where there was no such alias."""
    after: int | None


class LineageAttempt(Answer):
    """An attempt that was seen to run."""

    attempt: int
    started_at: AwareDatetime
    ended_at: AwareDatetime | None


class LineageJob(Answer):
    """The job that made a version."""

    job_id: str
    name: str
    kind: str
    state: JobState
    project: str
    owner: str
    spec_sha256: str
    created_at: AwareDatetime
    finished_at: AwareDatetime | None
    retry_of: str | None
    clone_of: str | None
    attempts: tuple[LineageAttempt, ...]


class LineageCorpus(Answer):
    """The prepared corpus that a version was trained on."""

    digest: str
    is_stored: bool
    """Whether it still lies in the storage."""
    figures: dict[str, int | float | str]
    """Its size, as the job's result has it."""
    sources: tuple[dict[str, Any], ...]
    """Each with its `words` in the spec, `num_files`, `size_bytes`, `files_sha256` over names, sizes and identities,
    and the first `files`; of corpora that were prepared before this was written down the `words` alone."""


class LineageParent(Answer):
    """Weights that the job began with."""

    field: str
    """JSON pointer into the job's spec."""
    name: str | None
    """Of a registered model."""
    version: int | None
    """That the job read; absent where it did not write that down."""
    uri: str | None
    """Of files."""
    lineage: ModelLineage | None
    """Of that version, as far as the principal sees it."""


class ModelLineage(Answer):
    """Where a version comes from."""

    name: str
    version: int
    network: str | None
    task: str | None
    """Of a finetuned network."""
    mlflow_run_id: str | None
    job: LineageJob | None
    """Absent where no job of this service and of the model's project made it."""
    corpus: LineageCorpus | None
    parents: tuple[LineageParent, ...]

    @classmethod
    def from_lineage(cls, lineage: Lineage) -> ModelLineage:
        """The public view."""
        return cls.model_validate(asdict(lineage))


def _version_fields(version: RegisteredVersion) -> dict[str, Any]:
    return {
        "name": version.name,
        "version": version.version,
        "created_at": version.created_at,
        "network": version.tags.get(NETWORK_TAG),
        "job_id": version.job_id,
        "mlflow_run_id": version.run_id,
        "description": version.description,
        "tags": dict(version.tags),
    }
