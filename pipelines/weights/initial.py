"""From the `initialization` section to a checked copy of the weights in the job's directory, before anything is read
of the corpus.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from tokenizers import Tokenizer

from electra_core.config import EncoderConfig
from electra_core.conversion.converted import Converted
from electra_core.conversion.from_ours import from_ours
from electra_core.conversion.from_tensorflow import NETWORKS
from electra_core.conversion.from_transformers import from_transformers
from electra_core.encoder import Encoder
from electra_core.parts import exported_networks, generator_encoder, network_parts
from electra_core.pretraining import ElectraForPretraining
from pipelines import storage
from pipelines.errors import CheckpointError, CorpusError
from pipelines.specs.corpus import PretrainedTokenizerSpec
from pipelines.specs.initialization import CheckpointInitialization, Network, TensorflowInitialization
from pipelines.specs.pretrain import PretrainSpec
from pipelines.tokenizer import read_pretrained, vocab_size
from pipelines.weights.kept import InitialWeights, find_initial_weights, keep_initial_weights
from pipelines.weights.shapes import networks_to_fill
from pipelines.weights.sources import NetworkWeights, read_ours, read_tensorflow, read_transformers

log = logging.getLogger(__name__)

FOLDER = "initial_weights"
_COMPARED = (
    *("vocab_size", "hidden_size", "embedding_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("type_vocab_size", "layer_norm_eps"),
)


def prepare_initial_weights(spec: PretrainSpec, job_uri: str) -> InitialWeights | None:
    """Read, check and convert the weights the spec names; a complete copy is returned as it is.

    Args:
        spec: its `initialization` section; None there gives None.
        job_uri: the job's directory, which gets the folder `initial_weights`.

    Raises:
        CheckpointError: the weights are absent or damaged, or do not fit the spec's sizes or its vocabulary.
        CorpusError: the tokenizer is none.
        StorageError: a file cannot be read.
    """
    section = spec.initialization
    if section is None:
        return None
    uri = storage.join(job_uri, FOLDER)
    kept = find_initial_weights(uri)
    if kept is not None:
        return kept
    assert isinstance(spec.tokenizer, PretrainedTokenizerSpec)  # the spec sees to it
    tokenizer = read_pretrained(spec.tokenizer)
    networks = networks_to_fill(spec, vocab_size(tokenizer))
    try:
        if isinstance(section, CheckpointInitialization):
            converted = _from_checkpoint(section.uri, section.load, networks, tokenizer)
        else:
            if isinstance(section, TensorflowInitialization):
                sources = read_tensorflow(section.uri, _wanted(section.load, networks))
            else:
                uris = {"discriminator": section.discriminator_uri, "generator": section.generator_uri}
                sources = {network: read_transformers(folder) for network, folder in uris.items() if folder is not None}
            converted = _from_networks(sources, networks, tokenizer)
    except ValueError as error:  # the conversion's: tensor, expected shape and received one
        raise CheckpointError(f"initialization: {error}") from error
    _say(converted)
    return keep_initial_weights(
        uri,
        converted.state,
        {
            "initialization": section.model_dump(mode="json"),
            "missing": list(converted.missing),
            "unexpected": list(converted.unexpected),
            "untouched": list(converted.untouched),
            "notes": list(converted.notes),
        },
    )


def _from_networks(
    sources: Mapping[str, NetworkWeights], networks: ElectraForPretraining, tokenizer: Tokenizer
) -> Converted:
    for network, source in sources.items():
        _check_sizes(network, source.sizes, _sizes(networks, network), source.uri, says_heads=source.is_complete)
        _compare_vocabularies(source.uri, tokenizer)
        if source.unknown:
            log.warning("weights_unknown", extra={"uri": source.uri, "tensors": source.unknown[:20]})
    return from_transformers(networks, **{network: source.state for network, source in sources.items()})


def _from_checkpoint(
    uri: str,
    load: Network,
    networks: ElectraForPretraining,
    tokenizer: Tokenizer,
) -> Converted:
    source = read_ours(uri)
    if source.spec is None:  # shapes are compared all the same; the number of heads is not in them
        log.warning("weights_without_spec", extra={"uri": source.uri})
        if source.vocab_size != networks.vocab_size:
            raise CheckpointError(_other_vocabulary(source.uri, source.vocab_size, networks.vocab_size))
    else:
        theirs = _trained_sizes(source.spec, source.vocab_size)
        for network in _wanted(load, networks):
            if network in theirs:
                _check_sizes(network, theirs[network], _sizes(networks, network), source.uri)
            elif load == network:
                raise CheckpointError(f"{source.uri} must hold a {network}, got {' and '.join(theirs)}")
        exported = storage.join(source.job_uri, "exports", exported_networks(source.spec.objective)[0])
        _compare_vocabularies(exported, tokenizer)
    return from_ours(networks, source.state, load)


def _wanted(load: Network, networks: ElectraForPretraining) -> tuple[str, ...]:
    """`both` is what the objective trains of the two."""
    return tuple(name for name in NETWORKS if hasattr(networks, name)) if load == "both" else (load,)


def _trained_sizes(spec: PretrainSpec, vocab_size: int) -> dict[str, EncoderConfig]:
    """Of the networks another job trains; Electric's towers are no generator."""
    sizes = {"discriminator": spec.model.discriminator(vocab_size)}
    if network_parts(spec.objective).generator:
        sizes["generator"] = generator_encoder(spec.model, spec.objective, vocab_size)
    return sizes


def _sizes(networks: ElectraForPretraining, network: str) -> EncoderConfig:
    encoder = getattr(networks, network, None)
    if not isinstance(encoder, Encoder):
        raise CheckpointError(f"initialization must name networks that the objective trains, got a {network}")
    return encoder.config


def _check_sizes(
    network: str, theirs: EncoderConfig, ours: EncoderConfig, uri: str, *, says_heads: bool = True
) -> None:
    if theirs.vocab_size != ours.vocab_size:
        raise CheckpointError(_other_vocabulary(uri, theirs.vocab_size, ours.vocab_size))
    problems = []
    for name in _COMPARED:
        expected, got = getattr(theirs, name), getattr(ours, name)
        if expected == got:
            continue
        if name == "num_attention_heads" and not says_heads:
            log.warning(
                "weights_may_have_other_heads",
                extra={"uri": uri, "network": network, "usual": expected, "num_attention_heads": got},
            )
        elif name != "layer_norm_eps" or says_heads:
            problems.append(f"{name} {expected}, got {got}")
    if theirs.max_position_embeddings < ours.max_position_embeddings:
        positions = theirs.max_position_embeddings
        problems.append(f"max_position_embeddings at most {positions}, got {ours.max_position_embeddings}")
    if problems:
        raise CheckpointError(f"the spec's model must give the {network} the sizes of {uri}: {'; '.join(problems)}")


def _other_vocabulary(uri: str, expected: int, got: int) -> str:
    return f"tokenizer.uri must name the vocabulary of {uri}, which has {expected} entries, got {got}"


def _compare_vocabularies(uri: str, tokenizer: Tokenizer) -> None:
    """Say it where a vocabulary lies beside the weights and has other entries: the size alone may agree by chance."""
    try:
        # For its entries alone: how it reads text is no matter here.
        any_rules = PretrainedTokenizerSpec(uri=uri, lowercase=False, strip_accents=False)
        theirs = read_pretrained(any_rules).get_vocab(with_added_tokens=True)
    except (storage.StorageError, CorpusError):
        return  # there is none
    ours = tokenizer.get_vocab(with_added_tokens=True)
    differing = sorted(token for token, token_id in ours.items() if theirs.get(token) != token_id)
    if differing:
        log.warning(
            "weights_of_another_vocabulary",
            extra={"uri": uri, "num_differing": len(differing), "num_entries": len(ours), "first": differing[:5]},
        )


def _say(converted: Converted) -> None:
    log.info("initial_weights_converted", extra={"num_tensors": len(converted.state)})
    for note in converted.notes:
        log.warning("initial_weights_note", extra={"note": note})
    if converted.untouched:
        log.warning("initial_weights_from_seed", extra={"parts": _parts(converted.untouched)})
    if converted.missing:
        log.warning("initial_weights_missing", extra={"tensors": converted.missing[:20]})
    if converted.unexpected:
        log.warning("initial_weights_unexpected", extra={"tensors": converted.unexpected[:20]})


def _parts(names: Iterable[str]) -> dict[str, int]:
    """`generator`, `generator_head`, …: what keeps the seed's start, with the number of its tensors."""
    parts: dict[str, int] = {}
    for name in names:
        part = name.partition(".")[0]
        parts[part] = parts.get(part, 0) + 1
    return parts
