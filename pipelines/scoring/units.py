"""The units of work of an evaluation job: a network on a file of pairs, or both networks on a source of text.

Each leaves a document in the job's directory; one that is there is never made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from pipelines import storage
from pipelines.scoring.networks import KeptNetwork
from pipelines.scoring.pairs import PairScores, score_pairs
from pipelines.scoring.text import TextScores, score_text
from pipelines.specs.compute import WorkerSpec
from pipelines.specs.corpus import Source
from pipelines.specs.evaluate import MinimalPairsSpec, UnseenTextSpec
from pipelines.storage.artifacts import digest_of
from pipelines.training.workers import choose_cpu_kernels, limit_threads


@dataclass(frozen=True)
class PairsUnit:
    """One network on one file of pairs."""

    network: KeptNetwork
    spec: MinimalPairsSpec
    file_uri: str
    file_identity: str
    max_tokens: int
    """Of a sentence, [CLS] and [SEP] included: the same for all networks of the job, so all see the same pairs."""
    compute: WorkerSpec
    uri: str
    """Without ending: `.json` gets the counts, `.jsonl` both scores of every pair."""

    @property
    def identity(self) -> str:
        """Digest of what decides the scores."""
        return digest_of(
            {
                "network": [self.network.kind, self.network.sha256, self.network.tokenizer_sha256],
                "file": [self.file_uri, self.file_identity],
                "spec": self.spec.model_dump(mode="json", exclude={"uris"}),
                "max_tokens": self.max_tokens,
            }
        )


@dataclass(frozen=True)
class TextUnit:
    """Both networks on one source of text."""

    generator: KeptNetwork
    discriminator: KeptNetwork | None
    name: str
    """Of the source."""
    source: Source
    spec: UnseenTextSpec
    compute: WorkerSpec
    uri: str
    """Without ending: `.json` gets the figures."""

    @property
    def identity(self) -> str:
        """Digest of what decides the scores, as the spec tells it: files may change while a job runs, and are read
        once.
        """
        return digest_of(
            {
                "networks": [
                    one and [one.sha256, one.tokenizer_sha256] for one in (self.generator, self.discriminator)
                ],
                "source": self.source.model_dump(mode="json"),
                "spec": self.spec.model_dump(mode="json", exclude={"sources"}),
            }
        )


Unit = PairsUnit | TextUnit


def score_unit(unit: Unit) -> PairScores | TextScores:
    """Score, and leave the document; a complete one is read.

    Raises:
        PipelineError: see `score_pairs` and `score_text`.
    """
    path = f"{unit.uri}.json"
    if storage.exists(path):
        document: Mapping[str, Any] = storage.read_json(path)
        if document.get("identity") == unit.identity:
            return _from_document(unit, document["scores"])
    limit_threads(unit.compute)
    choose_cpu_kernels()
    device = torch.device("cuda" if unit.compute.gpus_per_worker else "cpu")
    scores: PairScores | TextScores
    if isinstance(unit, PairsUnit):
        scores, lines = score_pairs(unit.network, unit.file_uri, unit.spec, unit.max_tokens, device)
        storage.write_bytes(f"{unit.uri}.jsonl", lines.encode())
    else:
        scores = score_text(unit.generator, unit.discriminator, unit.name, unit.source, unit.spec, device)
    storage.write_json(path, {"identity": unit.identity, "scores": asdict(scores)})
    return scores


def _from_document(unit: Unit, scores: Mapping[str, Any]) -> PairScores | TextScores:
    made = PairScores if isinstance(unit, PairsUnit) else TextScores
    return made(**{**scores, "report": tuple(scores["report"])})
