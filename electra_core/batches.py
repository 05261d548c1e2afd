"""What travels through one training step: rows of tokens, then the same rows with positions masked.

Shapes: B rows, L positions, N masked positions (a fixed number per row, so that the step has static shapes).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of the five tokens the method gives a meaning to."""

    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows of token ids as they come from the corpus."""

    input_ids: Tensor
    """int64[B, L]."""
    attention_mask: Tensor
    """bool[B, L]; False at padding."""
    rows: Tensor
    """int64[B]; position of each row in the *global* batch of this step. Every random draw is keyed by it, so results
    do not depend on how many workers or micro-batches share the rows."""
    token_type_ids: Tensor | None = None
    """int64[B, L], or None where all are 0."""
    is_packed: bool = False
    """The caller knows that no row has padding. Decided by what made the batch and never read from the mask, which
    would make the device wait; attention then needs no mask at all."""


@dataclass(frozen=True, slots=True)
class MaskedBatch:
    """The same rows with N positions each chosen for the generator to fill in."""

    generator_input_ids: Tensor
    """int64[B, L]; what the generator sees."""
    original_ids: Tensor
    """int64[B, L]; the unmasked input."""
    attention_mask: Tensor
    """bool[B, L]; False at padding."""
    token_type_ids: Tensor | None
    """int64[B, L], or None where all are 0."""
    masked_positions: Tensor
    """int64[B, N]; all different within a row. Rows with fewer masked positions are filled up with others."""
    masked_weights: Tensor
    """float32[B, N]; 1 at a masked position, 0 at filler."""
    rows: Tensor
    """int64[B]; as in `TokenBatch`."""
    is_packed: bool = False
    """As in `TokenBatch`."""

    @property
    def num_masked(self) -> Tensor:
        """Masked positions without filler, 0-dim float32."""
        return self.masked_weights.sum()

    @property
    def num_real(self) -> Tensor:
        """Positions that are not padding, 0-dim float32."""
        if self.is_packed:
            size = self.original_ids.numel()
            return torch.full((), float(size), dtype=torch.float32, device=self.original_ids.device)
        return self.attention_mask.sum(dtype=torch.float32)

    def split(self, num_micro_batches: int) -> tuple[MaskedBatch, ...]:
        """Cut the rows into `num_micro_batches` equal runs, as views.

        Raises:
            ValueError: the number of rows is not a multiple of `num_micro_batches`.
        """
        num_rows = self.rows.shape[0]
        if num_micro_batches < 1 or num_rows % num_micro_batches:
            raise ValueError(
                "num_micro_batches must be at least 1 and divide the rows of the batch, "
                f"got {num_micro_batches} for {num_rows} rows"
            )
        size = num_rows // num_micro_batches

        tensors: dict[str, Any] = {
            f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)
        }
        return tuple(
            replace(self, **{name: value[start : start + size] for name, value in tensors.items()})
            for start in range(0, num_rows, size)
        )
