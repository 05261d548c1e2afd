"""From a registered version back to what it was made of: run, job, attempts, corpus, sources, and the models before."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pipelines import storage
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.jobs import JobSpec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.search import SearchSpec
from pipelines.specs.trials import base_spec
from pipelines.storage.artifacts import MANIFEST_FILE
from pipelines.storage.uses import SOURCES_FILE
from service.errors import ModelNotFoundError, StorageUnavailableError
from service.interfaces import FolderError
from service.jobs.namespaces import project_of
from service.jobs.references import places, registered_networks
from service.jobs.work import read_stored_spec
from service.records import Job
from service.settings import Settings
from service.shelf.exports import Exports
from service.shelf.lineage_records import CorpusNode, JobNode, Lineage, Parent
from service.shelf.models import Models
from service.shelf.registry import NETWORK_TAG, RegisteredVersion
from service.shelf.usage import UsageStore

MAX_DEPTH = 5
"""Models before the model before."""
_ORIGIN = re.compile(r"(?P<name>.+) version (?P<version>[1-9][0-9]*)")


class Lineages:
    """Follows versions back."""

    def __init__(self, models: Models, exports: Exports, usage: UsageStore, settings: Settings) -> None:
        self._models = models
        self._exports = exports
        self._usage = usage
        self._settings = settings

    def of(self, version: RegisteredVersion, sees: Callable[[str], bool], depth: int = MAX_DEPTH) -> Lineage:
        """Where a version comes from, as far as it is on record.

        Args:
            version: of a model that the principal sees.
            sees: whether the principal sees a project: of a model in another nothing but its name is told.
            depth: models before the model before.

        Raises:
            RegistryUnavailableError: MLflow does not answer.
            StorageUnavailableError: the storage does not answer.
        """
        job = self._exports.job_of(version)
        try:
            made = self._exports.made_version(version)
            corpus = None if job is None else self._corpus_of(job)
            parents = () if job is None else self._parents_of(job, sees, depth)
        except (FolderError, storage.StorageError) as error:
            raise StorageUnavailableError(f"{error}. Try again in a moment.") from error
        return Lineage(
            name=version.name,
            version=version.version,
            network=version.tags.get(NETWORK_TAG),
            task=None if made is None else made.task,
            mlflow_run_id=version.run_id,
            job=None if job is None else self._job_node(job),
            corpus=corpus,
            parents=parents,
        )

    def _job_node(self, job: Job) -> JobNode:
        return JobNode(
            job_id=job.job_id,
            name=job.name,
            kind=job.kind,
            state=job.state,
            project=job.project,
            owner=job.owner,
            spec_sha256=job.spec_sha256,
            created_at=job.created_at,
            finished_at=job.finished_at,
            retry_of=job.retry_of,
            clone_of=job.clone_of,
            attempts=tuple(self._usage.attempts_of(job.job_id)),
        )

    def _corpus_of(self, job: Job) -> CorpusNode | None:
        described = {} if job.result is None else job.result.corpus
        digest = described.get("digest")
        if not isinstance(digest, str) or re.fullmatch(r"[0-9a-f]{64}", digest) is None:
            return None
        folder = storage.join(self._settings.storage_uri, "corpora", digest)
        sources_uri = storage.join(folder, SOURCES_FILE)
        is_known = storage.exists(sources_uri)
        sources = storage.read_json(sources_uri).get("sources", []) if is_known else _sources_of_spec(_spec_of(job))
        return CorpusNode(
            digest=digest,
            is_stored=storage.exists(storage.join(folder, MANIFEST_FILE)),
            figures={name: value for name, value in described.items() if name not in ("digest", "uri", "was_found")},
            sources=tuple(sources),
        )

    def _parents_of(self, job: Job, sees: Callable[[str], bool], depth: int) -> tuple[Parent, ...]:
        spec = _spec_of(job)
        if spec is None:
            return ()
        parents = [self._registered(job, pointer, model.name, sees, depth) for pointer, model in _models_of(spec)]
        return (*parents, *_files_of(spec))

    def _registered(self, job: Job, pointer: str, name: str, sees: Callable[[str], bool], depth: int) -> Parent:
        if not sees(project_of(name)):
            return Parent(field=pointer, name=name)
        version = self._version_that_was_read(job) if pointer == "/model" else None
        if version is None:
            return Parent(field=pointer, name=name, version=version)
        before = None
        if depth > 0:
            try:
                before = self.of(self._models.version(name, str(version))[0], sees, depth - 1)
            except ModelNotFoundError:  # deleted in MLflow since
                before = None
        return Parent(field=pointer, name=name, version=version, lineage=before)

    def _version_that_was_read(self, job: Job) -> int | None:
        """An alias moves: the job wrote down which version it found, beside its copy."""
        uri = storage.join(self._settings.job_uri(job.job_id), "base", MANIFEST_FILE)
        if not storage.exists(uri):
            return None
        found = _ORIGIN.fullmatch(str(storage.read_json(uri).get("origin", "")))
        return None if found is None else int(found["version"])


def _spec_of(job: Job) -> JobSpec | None:
    try:
        return read_stored_spec(job.spec_json)
    except ValueError:
        return None  # of another version of this software


def _models_of(spec: JobSpec) -> list[tuple[str, Any]]:
    return registered_networks(spec)


def _files_of(spec: JobSpec) -> tuple[Parent, ...]:
    """Weights that the job began with and that lie somewhere; its data is no parent."""
    wanted = ("/model/", "/initialization/", "/base/initialization/")
    names = ("uri", "discriminator_uri", "generator_uri")
    found = [one for one in places(spec) if one.pointer.startswith(wanted) and one.pointer.rpartition("/")[2] in names]
    return tuple(Parent(field=one.pointer, uri=one.uri) for one in found)


def _sources_of_spec(spec: JobSpec | None) -> list[Mapping[str, Any]]:
    """What the spec says, of corpora that were prepared before sizes were written down."""
    if isinstance(spec, SearchSpec):
        spec = base_spec(spec)
    if spec is None or isinstance(spec, FinetuneSpec) or not isinstance(spec, PretrainSpec):
        return []
    return [{"type": one.type, "words": one.model_dump(mode="json", exclude={"weight"})} for one in spec.corpus.sources]
