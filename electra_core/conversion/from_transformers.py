"""State dicts of Transformers' Electra classes as our networks' weights.

The other way round is `to_transformers`. What the networks share is taken from the discriminator where both are given;
with `sharing: gdes` the difference of the two tables becomes the discriminator's own part.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from electra_core.config import Sharing
from electra_core.conversion.collector import DETECTION_HEAD, EMBEDDINGS, Collector, clean_names
from electra_core.conversion.converted import Converted
from electra_core.pretraining import ElectraForPretraining

_TABLES = ("word", "position", "token_type")


def from_transformers(
    networks: ElectraForPretraining,
    discriminator: Mapping[str, Tensor] | None = None,
    generator: Mapping[str, Tensor] | None = None,
) -> Converted:
    """Bring one network or both into our names. `networks` is not changed: see `Converted.state`.

    A position table that is longer than ours is cut; a shorter one is refused, as its last rows would be untrained.

    Args:
        networks: gives names, shapes and sizes.
        discriminator: of `ElectraForPreTraining`, or of any class with an Electra backbone; None leaves it out. A
            main network that predicts tokens takes the head of `ElectraForMaskedLM`.
        generator: of `ElectraForMaskedLM`, or likewise.

    Raises:
        ValueError: a tensor has another shape than ours or is not finite, an encoder has another depth, `networks`
            lack a network that is given, or a generator's output matrix is not its word embeddings.
    """
    target = networks.state_dict()
    for network, given in (("discriminator", discriminator), ("generator", generator)):
        if given is not None and not any(name.startswith(f"{network}.") for name in target):
            raise ValueError(f"the networks must have a {network} to take its weights, got none")
    sharing = networks.model_config.sharing
    parts: list[Collector] = []
    if discriminator is not None:
        part = Collector("discriminator", clean_names(discriminator), target)
        part.take_embeddings(_embedding_names("discriminator", sharing), networks.vocab_size)
        part.take_encoder("discriminator", networks.discriminator)
        part.take_modules("discriminator_head", DETECTION_HEAD)
        part.take_language_head("language_head", networks.vocab_size)
        parts.append(part)
    if generator is not None:
        part = Collector("generator", clean_names(generator), target)
        part.take_embeddings(_embedding_names("generator", sharing), networks.vocab_size)
        part.take_encoder("generator", networks.generator)
        part.take_language_head("generator_head", networks.vocab_size)
        parts.append(part)
    return _joined(parts, target, sharing)


def _embedding_names(network: str, sharing: Sharing) -> dict[str, str]:
    """Where a network's tables go; with `gdes` the discriminator's whole tables stand in for its differences first."""
    if network == "discriminator" and sharing == "none":
        return {ours: f"discriminator_embeddings.own.{ours}" for ours in EMBEDDINGS}
    if network == "discriminator" and sharing == "gdes":
        deltas = {table: f"discriminator_embeddings.{table}_delta" for table in _TABLES}
        return {ours: deltas.get(ours, f"discriminator_embeddings.{ours}") for ours in EMBEDDINGS}
    return {ours: f"embeddings.{ours}" for ours in EMBEDDINGS}


def _disentangle(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """E_D = E_G + Δ, solved for Δ; a discriminator that comes alone gives both tables."""
    result = dict(state)
    for ours, owned in _embedding_names("discriminator", "gdes").items():
        if owned not in state:
            continue
        result.setdefault(f"embeddings.{ours}", state[owned])
        if ours in _TABLES:
            result[owned] = state[owned] - result[f"embeddings.{ours}"]
    return result


def _unite(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    """One encoder under both names, the discriminator's where there are two; and whether two were not the same."""
    result, differ = dict(state), False
    for name in state:
        network, _, rest = name.partition(".")
        other = f"{'generator' if network == 'discriminator' else 'discriminator'}.{rest}"
        if network == "discriminator":
            differ |= other in state and not torch.equal(state[name], state[other])
            result[other] = state[name]
        elif network == "generator":
            result.setdefault(other, state[name])
    return result, differ


def _joined(parts: list[Collector], target: Mapping[str, Tensor], sharing: Sharing) -> Converted:
    state: dict[str, Tensor] = {}
    notes: list[str] = []
    for part in parts:
        # The discriminator comes first, and what both bring is its.
        differing = [name for name in part.state if name in state and not torch.equal(part.state[name], state[name])]
        if differing:
            notes.append(
                "the networks' embeddings differ and are shared here: the discriminator's are taken "
                f"({', '.join(differing)})"
            )
        state = part.state | state
        notes += part.notes
    if sharing == "gdes":
        state = _disentangle(state)
    elif sharing == "all":
        state, differ = _unite(state)
        if differ:
            notes.append("the networks' encoders differ and are one here: the discriminator's is taken")
    return Converted(
        state,
        missing=tuple(name for part in parts for name in part.missing),
        unexpected=tuple(
            f"{part.network}: {name}" for part in parts for name in sorted(part.source.keys() - part.seen)
        ),
        untouched=tuple(sorted(target.keys() - state.keys())),
        notes=tuple(dict.fromkeys(notes)),
    )
