"""Single pretrained networks out of state dicts of Transformers' Electra classes, heads included."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from electra_core.conversion.collector import DETECTION_HEAD, EMBEDDINGS, Collector, clean_names
from electra_core.conversion.converted import Converted
from electra_core.scoring.networks import Discriminator, MaskedLanguageModel


def single_network(network: Discriminator | MaskedLanguageModel, pretrained: Mapping[str, Tensor]) -> Converted:
    """A network's weights in our names; `network` is not changed.

    Args:
        network: gives names, shapes and sizes.
        pretrained: state dict of `ElectraForPreTraining` for a discriminator, of `ElectraForMaskedLM` for a masked
            language model; or of a class that has the head they have besides others.

    Raises:
        ValueError: a tensor has another shape than ours or is not finite, the depths differ, or the output matrix is
            not the word embeddings.
    """
    target = network.state_dict()
    kind = "discriminator" if isinstance(network, Discriminator) else "masked language model"
    part = Collector(kind, clean_names(pretrained), target)
    part.take_embeddings({name: f"embeddings.{name}" for name in EMBEDDINGS}, network.config.vocab_size)
    part.take_encoder("encoder", network.encoder)
    if isinstance(network, Discriminator):
        part.take_modules("head", DETECTION_HEAD)
    else:
        part.take_language_head("head", network.config.vocab_size)
    return Converted(
        part.state,
        missing=tuple(part.missing),
        unexpected=tuple(sorted(part.source.keys() - part.seen)),
        untouched=tuple(sorted(target.keys() - part.state.keys())),
        notes=tuple(part.notes),
    )
