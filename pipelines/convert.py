"""Weights from elsewhere as folders that Transformers reads: what `electra convert` runs.

    python -m pipelines.convert SOURCE DESTINATION [--vocab URI] [--network discriminator]

Exit status 0: written; 2: the source cannot be read or converted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import safetensors.torch
from tokenizers import Tokenizer

from electra_core.batches import SpecialTokens
from electra_core.config import EncoderConfig
from electra_core.conversion.from_tensorflow import NETWORKS
from electra_core.conversion.to_transformers import transformers_config
from pipelines import storage
from pipelines.errors import CheckpointError, PipelineError
from pipelines.export import ARCHITECTURES
from pipelines.specs.corpus import PretrainedTokenizerSpec
from pipelines.tokenizer import pretrained_file, read_pretrained, save_tokenizer, special_ids, vocab_size
from pipelines.weights.clean import Cleaned, clean_state
from pipelines.weights.collect import EXPORTED_AS, Collected, collect
from pipelines.weights.sources import CONFIG_FILE, NetworkWeights

_BERT_SPECIAL = SpecialTokens(pad_id=0, unk_id=100, cls_id=101, sep_id=102, mask_id=103)
"""Where no vocabulary is known: those of BERT's English vocabularies. A config.json names [PAD]'s alone."""
_MAX_SHOWN = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert; see the module's docstring."""
    options = _parse(arguments)
    try:
        convert(options)
    except (PipelineError, ValueError) as error:
        print(f"cannot convert: {error}", file=sys.stderr)
        return 2
    return 0


def convert(options: argparse.Namespace) -> None:
    """Read the source, check it against Transformers' classes, and write a folder for each network.

    Raises:
        PipelineError: the source or the vocabulary cannot be read, or do not belong together.
        ValueError: the sizes are impossible.
    """
    wanted = NETWORKS if options.network == "both" else (options.network,)
    source = collect(options.source, wanted)
    tokenizer = _find_vocabulary(options, source)
    if tokenizer is None:
        _warn("no vocabulary lies beside the source: name one with --vocab to get tokenizer files")
    special = _BERT_SPECIAL if tokenizer is None else SpecialTokens(*special_ids(tokenizer))
    ready = {}
    for network, found in source.networks.items():
        sizes = _sizes(network, found, options.num_attention_heads)
        if tokenizer is not None and vocab_size(tokenizer) != sizes.vocab_size:
            raise CheckpointError(
                f"the vocabulary must have the {sizes.vocab_size} entries of {found.uri}, got {vocab_size(tokenizer)}"
            )
        config = transformers_config(sizes, special, ARCHITECTURES[network])
        ready[network] = clean_state(found.state, config, ARCHITECTURES[network]), config, sizes
        _say(network, found, ready[network][0])
    for network in wanted:
        if not any(name in ready for name in EXPORTED_AS[network]):
            _warn(f"the source holds no {network}")
    # Only now, when nothing can be refused any more.
    for network, (cleaned, config, sizes) in ready.items():
        folder = storage.join(options.destination, network)
        data = safetensors.torch.save(cleaned.state, metadata={"format": "pt"})
        storage.write_bytes(storage.join(folder, "model.safetensors"), data)
        if tokenizer is not None:
            save_tokenizer(tokenizer, folder, sizes.max_position_embeddings)
        text = json.dumps(config, indent=2, sort_keys=True) + "\n"
        storage.write_bytes(storage.join(folder, CONFIG_FILE), text.encode())
        count = sum(tensor.numel() for tensor in cleaned.state.values())
        print(f"{network}: {count:,} weights from {source.kind} → {folder}")


def _sizes(network: str, found: NetworkWeights, num_attention_heads: int | None) -> EncoderConfig:
    if num_attention_heads is not None and network != "generator":
        return EncoderConfig.model_validate({**dict(found.sizes), "num_attention_heads": num_attention_heads})
    if not found.is_complete:
        heads = found.sizes.num_attention_heads
        _warn(f"the source does not say how many heads the {network} has; one for each 64 of its width makes {heads}")
    return found.sizes


def _find_vocabulary(options: argparse.Namespace, source: Collected) -> Tokenizer | None:
    """The one that was named, or else one that lies where the source's should."""
    lowercase = False if options.cased else None
    if options.vocab is not None:
        return read_pretrained(PretrainedTokenizerSpec(uri=options.vocab, lowercase=lowercase))
    for uri in source.vocabulary_uris:
        try:
            pretrained_file(uri)
        except storage.StorageError:
            continue  # there is none
        if source.tokenizer is not None and uri == source.tokenizer.uri and not options.cased:
            return read_pretrained(source.tokenizer)  # with the rules of the job
        return read_pretrained(PretrainedTokenizerSpec(uri=uri, lowercase=lowercase))
    return None


def _say(network: str, found: NetworkWeights, cleaned: Cleaned) -> None:
    for what, names in (
        (f"the {network} lacks, so Transformers will start anew", cleaned.missing),
        (f"of the {network} is left out", cleaned.unexpected),
        ("belongs to no network and is left out", found.unknown),
    ):
        if names:
            _warn(f"{what}: {', '.join(names[:_MAX_SHOWN])}{' …' * (len(names) > _MAX_SHOWN)}")


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pipelines.convert", description="Write folders for Transformers.")
    parser.add_argument("source", help="TensorFlow prefix, Transformers folder, job directory or checkpoint")
    parser.add_argument("destination", help="gets a folder for each network, such as discriminator")
    parser.add_argument("--network", choices=("both", *NETWORKS), default="both")
    parser.add_argument("--vocab", help="a vocab.txt, a tokenizer.json, or a folder that holds one")
    parser.add_argument("--cased", action="store_true", help="a bare vocab.txt is not for lowercased text")
    parser.add_argument("--num-attention-heads", type=int, help="the discriminator's, where the source does not say")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
