"""What a conversion into our names gives."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Converted:
    """Our tensors, and what did not fit into them."""

    state: dict[str, Tensor]
    """Our names; float32, padded as our networks are. Every other parameter stays as it is."""
    missing: tuple[str, ...] = ()
    """Tensors that the source should have had, such as `generator: generator_lm_head.bias`."""
    unexpected: tuple[str, ...] = ()
    """Tensors of the source that have no place here."""
    untouched: tuple[str, ...] = ()
    """Our parameters that `state` leaves at their start."""
    notes: tuple[str, ...] = ()
    """What else should be said aloud."""
