"""What a job has left in storage and in MLflow, as JSON; runs within one of the chart's pods.

    python benchmarks/chart_look.py JOB_ID

It reads back all that has a digest written beside it: shards of corpora, checkpoints, and models out of the registry.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.storage.remote import object_store
from pipelines.storage.uses import list_files
from pipelines.training.checkpoint import list_checkpoints

_FAULTS = ("tried_again", "unwritten", "unreadable", "checkpoint_failed", "cannot be reached", "lease_heartbeat_failed")


def main() -> None:
    root = os.environ["ELECTRA_STORAGE_URI"]
    directory = JobDirectory(storage.join(root, "jobs", sys.argv[1]))
    wrong: list[str] = []
    corpora = [PreparedCorpus.read(uri) for uri in storage.list_directory(storage.join(root, "corpora"))]
    for corpus in corpora:
        for shard in corpus.shards:
            _compare(storage.join(corpus.uri, f"{shard.name}.bin"), shard.sha256, wrong)
    checkpoints = list_checkpoints(directory.path("checkpoints"))
    states = [storage.join(checkpoint.uri, "state.pt") for checkpoint in checkpoints]
    for uri, checkpoint in zip(states, checkpoints, strict=True):
        _compare(uri, checkpoint.sha256, wrong)
    exports = storage.list_directory(directory.path("exports"))
    weights = {
        uri.rpartition("/")[2]: _sha256(storage.read_bytes(storage.join(uri, "model.safetensors"))) for uri in exports
    }
    result = directory.read_result()
    registered = {} if result is None else {one.name: _registered(one.name, one.version) for one in result.models}
    wrong += [
        f"{name} in the registry is none of the exports"
        for name in registered
        if not _is_one_of(registered[name], weights)
    ]
    print(
        json.dumps({
            "weights": weights,
            "corpora": len(corpora),
            "checkpoints": [checkpoint.step for checkpoint in checkpoints],
            "parts": {uri.rsplit("/", 2)[1]: _num_parts(uri) for uri in states},
            "registered": registered,
            "faults": dict(_told(directory.uri)),
            "wrong": wrong,
        })
    )  # fmt: skip


def _is_one_of(digest: str, weights: dict[str, str]) -> bool:
    return digest in weights.values()


def _compare(uri: str, sha256: str, wrong: list[str]) -> None:
    found = _sha256(storage.read_bytes(uri))
    if found != sha256:
        wrong.append(f"{uri} has {found} and not {sha256}")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _num_parts(uri: str) -> int:
    """In which an object was uploaded, by its ETag; 0 where it came in one request, or is a file."""
    if storage.is_local(uri):
        return 0
    filesystem, key = object_store(uri)
    with filesystem.open_input_file(key) as file:
        told: Any = file.metadata().get("ETag", b"")
    return int(told.decode().strip('"').partition("-")[2] or 0)


def _registered(name: str, version: int | str) -> str:
    """The digest of a model's weights as MLflow gives them out."""
    import mlflow

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(mlflow.artifacts.download_artifacts(f"models:/{name}/{version}", dst_path=scratch))
        (weights,) = folder.rglob("model.safetensors")
        return _sha256(weights.read_bytes())


def _told(job_uri: str) -> Iterator[tuple[str, int]]:
    """How often the job's logs speak of a storage that was away."""
    text = b"".join(
        storage.read_bytes(storage.join(job_uri, "logs", file.path))
        for file in list_files(storage.join(job_uri, "logs"))
    )
    for word in _FAULTS:
        if number := text.count(word.encode()):
            yield word, number


if __name__ == "__main__":
    main()
