"""A state dict in the names of Transformers on its way into ours, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from electra_core.encoder import Encoder

# Our module to the modules of Transformers it is made of, stacked by rows where there are several.
EMBEDDINGS = {
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
DETECTION_HEAD = {
    "dense": "discriminator_predictions.dense",
    "prediction": "discriminator_predictions.dense_prediction",
}
_LANGUAGE_HEAD = {"dense": "generator_predictions.dense", "layer_norm": "generator_predictions.LayerNorm"}
_LM_WEIGHT = "generator_lm_head.weight"
_LEGACY_KINDS = {".gamma": ".weight", ".beta": ".bias"}
"""What old exports call the parameters of a LayerNorm."""


@dataclass
class Collector:
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

    def take_embeddings(self, names: Mapping[str, str], vocab_size: int) -> None:
        """Take the three tables and their LayerNorm; `names` tells what each key of `EMBEDDINGS` is called here."""
        self.take_rows(names["word"], EMBEDDINGS["word"], vocab_size)
        if names["position"] in self.target:
            positions = self.target[names["position"]].shape[0]
            self.take_rows(names["position"], EMBEDDINGS["position"], positions, may_have_more=True)
        for ours in ("token_type", "layer_norm.weight", "layer_norm.bias"):
            self.take(names[ours], EMBEDDINGS[ours])

    def take_language_head(self, ours: str, vocab_size: int) -> None:
        """Take the head that gives each id a logit, all but its output matrix, which is the word embeddings."""
        self.take_modules(ours, _LANGUAGE_HEAD)
        self.take_rows(f"{ours}.bias", "generator_lm_head.bias", vocab_size)

    def take_encoder(self, ours: str, encoder: Encoder) -> None:
        """Take an encoder's layers, and the projection into them, under the prefix `ours`.

        Raises:
            ValueError: it has another depth.
        """
        depth = 1 + max((int(name.split(".")[3]) for name in self.source if _is_layer(name)), default=-1)
        if depth != encoder.config.num_hidden_layers:
            raise ValueError(f"the {self.network} must have {encoder.config.num_hidden_layers} layers, got {depth}")
        for name, theirs in _encoder_names(ours, encoder):
            self.take(name, *theirs)


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
    weight, word = cleaned.pop(_LM_WEIGHT, None), cleaned.get(EMBEDDINGS["word"])
    if weight is not None and (word is None or not torch.equal(weight, word)):
        raise ValueError(f"{_LM_WEIGHT} must equal {EMBEDDINGS['word']}, as it is tied to it here")
    return cleaned


def _is_layer(name: str) -> bool:
    return name.startswith("electra.encoder.layer.") and name.split(".")[3].isdecimal()


def _encoder_names(ours: str, encoder: Encoder) -> Iterator[tuple[str, tuple[str, ...]]]:
    for kind in ("weight", "bias"):
        if encoder.embeddings_projection is not None:
            yield f"{ours}.embeddings_projection.{kind}", (f"electra.embeddings_project.{kind}",)
        for index in range(encoder.config.num_hidden_layers):
            for module, theirs in _LAYER.items():
                names = tuple(f"electra.encoder.layer.{index}.{name}.{kind}" for name in theirs)
                yield f"{ours}.layers.{index}.{module}.{kind}", names
