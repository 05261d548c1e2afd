"""Weights of another job of ours, under the names they have here too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from electra_core.conversion.converted import Converted
from electra_core.pretraining import ElectraForPretraining

_POSITION_TABLES = ("embeddings.position", "own.position", "position_delta")
"""What the names of tables with a row per position end with."""
_OWN_TABLES = "discriminator_embeddings."
_LEFT_OUT = {
    "both": (),
    "discriminator": ("generator", "cloze_"),
    "generator": ("discriminator", "language_head"),
}
"""What the names of the other network's parts start with."""


def from_ours(
    networks: ElectraForPretraining,
    state: Mapping[str, Tensor],
    load: Literal["both", "discriminator", "generator"] = "both",
) -> Converted:
    """The tensors of a checkpoint that have a place in `networks`, which are not changed.

    A longer position table is cut; a shorter one is refused, as its last rows would be untrained.

    Args:
        networks: gives names and shapes.
        state: `state_dict()` of the other networks.
        load: both, or one network with the embeddings.

    Raises:
        ValueError: a tensor has another shape than ours, or is not finite; or the discriminator reads its tokens from
            other tables there than here, which no name can translate.
    """
    target = networks.state_dict()
    wanted = {name for name in target if not name.startswith(_LEFT_OUT[load])}
    if load != "generator":
        _check_sharing(target, state)
    taken: dict[str, Tensor] = {}
    notes = []
    for name in sorted(wanted & state.keys()):
        tensor = state[name].detach().to("cpu", torch.float32)
        rows = target[name].shape[0]
        if name.endswith(_POSITION_TABLES) and tensor.shape[0] > rows:
            notes.append(f"{name} is cut from {tensor.shape[0]} to {rows} rows")
            tensor = tensor[:rows].clone()
        if tensor.shape != target[name].shape:
            raise ValueError(f"{name} must have shape {tuple(target[name].shape)}, got {tuple(tensor.shape)}")
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity")
        taken[name] = tensor
    unexpected = (name for name in state.keys() - target.keys() if not name.startswith(_LEFT_OUT[load]))
    return Converted(
        taken,
        missing=tuple(sorted(wanted - state.keys())),
        unexpected=tuple(sorted(unexpected)),
        untouched=tuple(sorted(target.keys() - taken.keys())),
        notes=tuple(notes),
    )


def _check_sharing(target: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    ours, theirs = (sorted(name for name in names if name.startswith(_OWN_TABLES)) for names in (target, state))
    has_discriminator = all(any(name.startswith("discriminator.") for name in names) for names in (target, state))
    if has_discriminator and ours != theirs:
        raise ValueError(
            "model.sharing must be that of the checkpoint, whose discriminator would lose its embeddings otherwise: "
            f"expected {theirs or 'none of its own'}, got {ours or 'none of its own'}. Its exports are whole: "
            "start from them with initialization.type=transformers"
        )
