"""State dicts of Transformers' Electra classes as our networks' weights.

The other way round is `to_transformers`. What the networks share is taken from the discriminator where both are given;
with `sharing: gdes` the difference of the two tables becomes the discriminator's own part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from electra_core.config import Sharing
from electra_core.conversion.converted import Converted
from electra_core.encoder import Encoder
from electra_core.pretraining import ElectraForPretraining

# Our module to the modules of Transformers it is made of, stacked by rows where there are several.
_EMBEDDINGS = {
    "word": "electra.embeddings.word_embeddings.weight",
    "position": "electra.embeddings.position_embeddings.weight",
    "token_type": "electra.embeddings.token_type_embeddings.weight",
    "layer_norm.weight": "electra.embeddings.LayerNorm.weight",
    "layer_norm.bias": "electra.embeddings.LayerNorm.bias",
}
_LAYER = {
    "query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    "attention_layer_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_layer_norm": ("output.LayerNorm",),
}
_DETECTION_HEAD = {
    "dense": "discriminator_predictions.dense",
    "prediction": "discriminator_predictions.dense_prediction",
}
_LANGUAGE_HEAD = {"dense": "generator_predictions.dense", "layer_norm": "generator_predictions.LayerNorm"}
_TABLES = ("word", "position", "token_type")
_LM_BIAS, _LM_WEIGHT = "generator_lm_head.bias", "generator_lm_head.weight"
_LEGACY_KINDS = {".gamma": ".weight", ".beta": ".bias"}
"""What old exports call the parameters of a LayerNorm."""


@dataclass
class _Collector:
    """One state dict on its way into our names."""

    network: str
    source: Mapping[str, Tensor]
    target: Mapping[str, Tensor]
    """Our state dict, for its shapes."""
    state: dict[str, Tensor] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def take(self, ours: str, *theirs: str) -> None:
        """Stack tensors into one of ours, if they are all there; what has no place here stays unexpected."""
        if ours not in self.target:
            return
        self.seen.update(theirs)
        absent = [name for name in theirs if name not in self.source]
        if absent:
            self.missing += [f"{self.network}: {name}" for name in absent]
            return
        shape = self.target[ours].shape
        expected = torch.Size((shape[0] // len(theirs), *shape[1:]))
        self.state[ours] = torch.cat([self._checked(name, expected) for name in theirs])

    def take_rows(self, ours: str, theirs: str, num_rows: int, *, may_have_more: bool = False) -> None:
        """Take the first `num_rows` rows; rows of ours past them are zero. What has no place here stays
        unexpected.
        """
        if ours not in self.target:
            return
        self.seen.add(theirs)
        if theirs not in self.source:
            self.missing.append(f"{self.network}: {theirs}")
            return
        shape = torch.Size((num_rows, *self.target[ours].shape[1:]))
        rows = self.source[theirs].shape[0] if self.source[theirs].ndim else 0
        if may_have_more and rows > num_rows:
            self.notes.append(f"{self.network}: {theirs} is cut from {rows} to {num_rows} rows")
            values = self._checked(theirs, torch.Size((rows, *shape[1:])))[:num_rows]
        else:
            values = self._checked(theirs, shape)
        padded = torch.zeros(self.target[ours].shape)
        padded[:num_rows] = values
        self.state[ours] = padded

    def take_modules(self, ours: str, modules: Mapping[str, str]) -> None:
        """Take weights and biases of the modules that `ours` is made of, by the names of both."""
        for name, theirs in modules.items():
            for kind in ("weight", "bias"):
                self.take(f"{ours}.{name}.{kind}", f"{theirs}.{kind}")

    def _checked(self, name: str, expected: torch.Size) -> Tensor:
        tensor = self.source[name]
        if tensor.shape != expected:
            raise ValueError(
                f"{name} of the {self.network} must have shape {tuple(expected)}, got {tuple(tensor.shape)}"
            )
        tensor = tensor.detach().to("cpu", torch.float32)
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} of the {self.network} must be finite, got NaN or infinity")
        return tensor


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
    parts: list[_Collector] = []
    if discriminator is not None:
        part = _Collector("discriminator", clean_names(discriminator), target)
        _take_embeddings(part, networks)
        _take_encoder(part, networks.discriminator)
        part.take_modules("discriminator_head", _DETECTION_HEAD)
        _take_language_head(part, "language_head", networks.vocab_size)
        parts.append(part)
    if generator is not None:
        part = _Collector("generator", clean_names(generator), target)
        _take_embeddings(part, networks)
        _take_encoder(part, networks.generator)
        _take_language_head(part, "generator_head", networks.vocab_size)
        parts.append(part)
    return _joined(parts, target, networks.model_config.sharing)


def clean_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names of today's classes: with the backbone's prefix, without old names of LayerNorm's parameters, without
    buffers and without the output matrix, which is the word embeddings again.

    Raises:
        ValueError: the output matrix is another one: a generator that is not tied has no place here.
    """
    # A bare backbone (`ElectraModel`) has no prefix.
    prefix = "" if any(name.startswith("electra.") for name in state) else "electra."
    cleaned = {}
    for name, tensor in state.items():
        if name.endswith("embeddings.position_ids"):
            continue  # a buffer that counts
        for old, new in _LEGACY_KINDS.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        cleaned[prefix * name.startswith(("embeddings", "encoder.")) + name] = tensor
    weight, word = cleaned.pop(_LM_WEIGHT, None), cleaned.get(_EMBEDDINGS["word"])
    if weight is not None and (word is None or not torch.equal(weight, word)):
        raise ValueError(f"{_LM_WEIGHT} must equal {_EMBEDDINGS['word']}, as it is tied to it here")
    return cleaned


def _take_embeddings(part: _Collector, networks: ElectraForPretraining) -> None:
    names = _embedding_names(part.network, networks.model_config.sharing)
    part.take_rows(names["word"], _EMBEDDINGS["word"], networks.vocab_size)
    positions = part.target["embeddings.position"].shape[0]
    part.take_rows(names["position"], _EMBEDDINGS["position"], positions, may_have_more=True)
    for ours in ("token_type", "layer_norm.weight", "layer_norm.bias"):
        part.take(names[ours], _EMBEDDINGS[ours])


def _take_language_head(part: _Collector, head: str, vocab_size: int) -> None:
    part.take_modules(head, _LANGUAGE_HEAD)
    part.take_rows(f"{head}.bias", _LM_BIAS, vocab_size)


def _embedding_names(network: str, sharing: Sharing) -> dict[str, str]:
    """Where a network's tables go; with `gdes` the discriminator's whole tables stand in for its differences first."""
    if network == "discriminator" and sharing == "none":
        return {ours: f"discriminator_embeddings.own.{ours}" for ours in _EMBEDDINGS}
    if network == "discriminator" and sharing == "gdes":
        deltas = {table: f"discriminator_embeddings.{table}_delta" for table in _TABLES}
        return {ours: deltas.get(ours, f"discriminator_embeddings.{ours}") for ours in _EMBEDDINGS}
    return {ours: f"embeddings.{ours}" for ours in _EMBEDDINGS}


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


def _take_encoder(part: _Collector, encoder: Encoder) -> None:
    depth = 1 + max((int(name.split(".")[3]) for name in part.source if _is_layer(name)), default=-1)
    if depth != encoder.config.num_hidden_layers:
        raise ValueError(f"the {part.network} must have {encoder.config.num_hidden_layers} layers, got {depth}")
    for ours, theirs in _encoder_names(part.network, encoder):
        part.take(ours, *theirs)


def _is_layer(name: str) -> bool:
    return name.startswith("electra.encoder.layer.") and name.split(".")[3].isdecimal()


def _encoder_names(network: str, encoder: Encoder) -> Iterator[tuple[str, tuple[str, ...]]]:
    for kind in ("weight", "bias"):
        if encoder.embeddings_projection is not None:
            yield f"{network}.embeddings_projection.{kind}", (f"electra.embeddings_project.{kind}",)
        for index in range(encoder.config.num_hidden_layers):
            for ours, theirs in _LAYER.items():
                names = tuple(f"electra.encoder.layer.{index}.{name}.{kind}" for name in theirs)
                yield f"{network}.layers.{index}.{ours}.{kind}", names


def _joined(parts: list[_Collector], target: Mapping[str, Tensor], sharing: Sharing) -> Converted:
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
