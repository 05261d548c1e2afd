"""A state dict held against Transformers' own class: its names, its shapes, nothing more and nothing less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import transformers
from torch import Tensor

from pipelines.errors import CheckpointError

_TIED = "generator_lm_head.weight"


@dataclass(frozen=True)
class Cleaned:
    """What Transformers will load."""

    state: dict[str, Tensor]
    """float32, contiguous, each with storage of its own."""
    missing: tuple[str, ...]
    """What the class starts anew."""
    unexpected: tuple[str, ...]
    """What it has no place for; left out of `state`."""


def clean_state(state: Mapping[str, Tensor], config: Mapping[str, object], architecture: str) -> Cleaned:
    """Compare with the class and keep what belongs to it.

    Args:
        state: from `from_transformers.clean_names`.
        config: content of config.json.
        architecture: a class of Transformers, such as `ElectraForPreTraining`.

    Raises:
        CheckpointError: a tensor has another shape than the class gives it.
    """
    with torch.device("meta"):  # names and shapes alone
        model = getattr(transformers, architecture)(transformers.ElectraConfig.from_dict(dict(config)))
    expected = {name: tensor.shape for name, tensor in model.state_dict().items() if name != _TIED}
    kept = {}
    for name in sorted(expected.keys() & state.keys()):
        if state[name].shape != expected[name]:
            raise CheckpointError(f"{name} must have shape {tuple(expected[name])}, got {tuple(state[name].shape)}")
        kept[name] = state[name].detach().to("cpu", torch.float32).clone(memory_format=torch.contiguous_format)
    return Cleaned(
        kept,
        missing=tuple(sorted(expected.keys() - state.keys())),
        unexpected=tuple(sorted(state.keys() - expected.keys())),
    )
