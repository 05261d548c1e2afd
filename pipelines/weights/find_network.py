"""The network that a spec names, with its vocabulary, wherever it lies."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from pipelines import storage
from pipelines.errors import CheckpointError, CorpusError
from pipelines.specs.corpus import PretrainedTokenizerSpec
from pipelines.specs.model_source import NetworkFiles, RegisteredNetwork
from pipelines.tokenizer import longest_row, pretrained_file, read_pretrained, vocab_size, warn_of_ignored_rules
from pipelines.weights.collect import Collected, collect
from pipelines.weights.sources import NetworkWeights

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundNetwork:
    """Weights in the names of Transformers, and the vocabulary they belong to."""

    weights: NetworkWeights
    tokenizer: Tokenizer
    origin: str
    """Where it came from, for people."""
    longest_row: int | None
    """Tokens it was trained to read at once, where the files beside it say so."""


def find_network(
    source: RegisteredNetwork | NetworkFiles, wanted: tuple[str, ...], tracking_uri: str, field: str = "model"
) -> FoundNetwork:
    """Read a network and its vocabulary.

    Args:
        source: where it is.
        wanted: `discriminator`, `generator` or both: which of several is taken, the first that is there.
        tracking_uri: MLflow's, for models of its registry.
        field: of the spec, for messages.

    Raises:
        CheckpointError: it is absent or damaged, or no Electra network of the kind.
        CorpusError: there is no vocabulary that fits it.
        RecordError: MLflow has no such model, or does not answer.
        StorageError: a file cannot be read.
    """
    if isinstance(source, NetworkFiles):
        found = collect(source.uri, wanted)
        return _with_vocabulary(found, _vocabulary(found, source, field), source.uri)
    from pipelines.record.registry import download_transformers_model  # imports MLflow

    with tempfile.TemporaryDirectory() as scratch:
        files = download_transformers_model(tracking_uri, source.uri, Path(scratch), field)
        version = f"{source.name} version {files.version}"
        vocabulary = PretrainedTokenizerSpec(uri=str(files.tokenizer))
        return _with_vocabulary(collect(str(files.model), wanted), vocabulary, version)


def _with_vocabulary(found: Collected, vocabulary: PretrainedTokenizerSpec, origin: str) -> FoundNetwork:
    weights = next(iter(found.networks.values()))
    tokenizer = read_pretrained(vocabulary)
    entries = vocab_size(tokenizer)
    if entries > weights.sizes.vocab_size:
        raise CheckpointError(
            f"the vocabulary of {origin} must have at most {weights.sizes.vocab_size} entries, got {entries}"
        )
    if not weights.is_complete:
        log.warning(
            "heads_are_guessed", extra={"uri": origin, "num_attention_heads": weights.sizes.num_attention_heads}
        )
    return FoundNetwork(weights, tokenizer, origin, longest_row(vocabulary.uri))


def _vocabulary(found: Collected, source: NetworkFiles, field: str) -> PretrainedTokenizerSpec:
    """The vocabulary that is named, or lies beside the weights, with the rules that the spec or its own job gave it."""
    uri = source.tokenizer_uri or _uri_beside(found.vocabulary_uris, source.uri, field)
    said = PretrainedTokenizerSpec(uri=uri, lowercase=source.lowercase, strip_accents=source.strip_accents)
    warn_of_ignored_rules(said, field)
    job = found.tokenizer
    if job is None or uri != job.uri:
        return said
    return PretrainedTokenizerSpec(
        uri=uri,
        lowercase=job.lowercase if said.lowercase is None else said.lowercase,
        strip_accents=job.strip_accents if said.strip_accents is None else said.strip_accents,
    )


def _uri_beside(uris: tuple[str, ...], origin: str, field: str) -> str:
    for uri in uris:
        try:
            pretrained_file(uri)
        except storage.StorageError:
            continue
        return uri
    raise CorpusError(f"{origin} must have a vocabulary beside it, got none: name one under {field}.tokenizer_uri")
