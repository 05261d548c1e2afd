"""A registry in memory, and what lies in the storage of models and corpora."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from service_doubles import START
from sqlalchemy import Engine

from pipelines.specs.documents import JobResult
from pipelines.storage.artifacts import PreparedCorpus, Shard, SpecialTokenIds
from pipelines.storage.uses import note_use
from service.errors import InvalidCursorError, ModelNotFoundError, RegistryUnavailableError
from service.interfaces import JobFolders, JobStore
from service.ledger.access_store import SqlAccessStore
from service.ledger.locks import SqlLocks
from service.ledger.usage import SqlUsageStore
from service.settings import Settings
from service.shelf.registry import RegisteredModel, RegisteredVersion, Registry
from service.shelf.shelf import Shelf, make_shelf

DIGEST = "ab" * 32


class MemoryRegistry:
    """`Registry` in dictionaries."""

    def __init__(self) -> None:
        self.models: dict[str, RegisteredModel] = {}
        self.versions: dict[tuple[str, int], RegisteredVersion] = {}
        self.is_away = False

    def add(self, name: str, version: int = 1, aliases: Mapping[str, int] | None = None, **fields: Any) -> None:
        self.models.setdefault(name, RegisteredModel(name=name, created_at=START, updated_at=START))
        if aliases is not None:
            self.models[name] = replace(self.models[name], aliases=dict(aliases))
        self.versions[name, version] = RegisteredVersion(name=name, version=version, created_at=START, **fields)

    def forget(self, name: str) -> None:
        self.models.pop(name, None)
        self.versions = {key: value for key, value in self.versions.items() if key[0] != name}

    def search_models(self, prefix: str, token: str | None, limit: int) -> tuple[list[RegisteredModel], str | None]:
        self._check()
        names = sorted(name for name in self.models if name.startswith(prefix))
        chosen, after = _page(names, token, limit)
        return [self.models[name] for name in chosen], after

    def model(self, name: str) -> RegisteredModel | None:
        self._check()
        return self.models.get(name)

    def search_versions(self, name: str, token: str | None, limit: int) -> tuple[list[RegisteredVersion], str | None]:
        self._check()
        chosen, after = _page(sorted((v for n, v in self.versions if n == name), reverse=True), token, limit)
        return [self.versions[name, version] for version in chosen], after

    def version(self, name: str, version: int) -> RegisteredVersion | None:
        self._check()
        return self.versions.get((name, version))

    def version_of_job(self, job_id: str) -> RegisteredVersion | None:
        self._check()
        return next((one for one in self.versions.values() if one.job_id == job_id), None)

    def set_alias(self, name: str, alias: str, version: int) -> None:
        self._check()
        if (name, version) not in self.versions:
            raise ModelNotFoundError(f"Model {name!r} has no version {version}.")
        model = self.models[name]
        self.models[name] = replace(model, aliases={**model.aliases, alias: version})

    def delete_alias(self, name: str, alias: str) -> None:
        self._check()
        model = self.models[name]
        left = {one: version for one, version in model.aliases.items() if one != alias}
        self.models[name] = replace(model, aliases=left)

    def close(self) -> None:
        pass

    def _check(self) -> None:
        if self.is_away:
            raise RegistryUnavailableError("MLflow does not answer.")


def _page(items: list[Any], token: str | None, limit: int) -> tuple[list[Any], str | None]:
    if token is not None and not token.isdecimal():
        raise InvalidCursorError("cursor must be the next_cursor of an earlier page.")
    start = int(token or 0)
    end = start + limit
    return items[start:end], str(end) if end < len(items) else None


def shelf_of(engine: Engine, store: JobStore, folders: JobFolders, settings: Settings, registry: Registry) -> Shelf:
    """All parts over one database."""
    return make_shelf(
        settings,
        jobs=store,
        folders=folders,
        registry=registry,
        locks=SqlLocks(engine),
        usage=SqlUsageStore(engine),
        record=SqlAccessStore(engine).record,
    )


def folder_of(settings: Settings, *parts: str) -> Path:
    """A folder of the storage, made if need be."""
    folder = Path(settings.storage_uri, *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def export_files(settings: Settings, job_id: str, network: str = "discriminator") -> Path:
    """An export of two files, one of them as long as three chunks of a disk."""
    folder = folder_of(settings, "jobs", job_id, "exports", network)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 7}))
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 6)
    return folder


def made_by(settings: Settings, job_id: str, name: str, version: int, **fields: Any) -> JobResult:
    """The last word of a job that registered a version."""
    uri = f"{settings.storage_uri}/jobs/{job_id}/exports/discriminator"
    model = {"network": "discriminator", "name": name, "version": str(version), "alias": "newest", "export_uri": uri}
    return JobResult.model_validate({"state": "SUCCEEDED", "models": [model], **fields})


def keep_corpus(settings: Settings, *job_ids: str, digest: str = DIGEST) -> str:
    """A complete prepared corpus that these jobs use; its digest."""
    folder = folder_of(settings, "corpora", digest)
    for job_id in job_ids:
        note_use(str(folder), job_id)
    (folder / "source-000").mkdir(exist_ok=True)
    (folder / "source-000" / "train-00000.bin").write_bytes(b"12" * 50)
    shard = Shard(0, "train", "source-000/train-00000", 50, 5, 100, "0" * 64, "0" * 64)
    corpus = PreparedCorpus(
        uri=str(folder),
        digest=digest,
        tokenizer_uri=f"{settings.storage_uri}/tokenizers/{'cd' * 32}",
        vocab_size=64,
        special=SpecialTokenIds(0, 1, 2, 3, 4),
        token_dtype="uint16",
        source_train_tokens=(50,),
        num_train_tokens=50,
        num_validation_tokens=10,
        num_train_documents=5,
        num_validation_documents=1,
        num_bytes=300,
        counts={"records": 6, "bad_records": 0},
        shards=(shard,),
    )
    (folder / "manifest.json").write_text(json.dumps(corpus.to_manifest()))
    return digest
