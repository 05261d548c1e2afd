"""Which positions are masked."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from electra_core.config.base import FrozenModel


class MaskingConfig(FrozenModel):
    """Which positions the generator must fill, and what it sees there."""

    mask_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Masked positions per sequence, as a fraction of its real tokens, [CLS] and [SEP] counted. G calls it
    `mask_prob`; small and base use 0.15, large 0.25."""
    mask_token_fraction: Annotated[float, Field(ge=0, le=1)] = 0.85
    """Share of masked positions that show [MASK] to the network that fills them (G: inline 0.85; BERT: 0.8)."""
    random_token_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of masked positions that show a token drawn evenly from the vocabulary (G: 0; BERT: 0.1). What neither
    share takes shows the original."""
    whole_word: bool = False
    """Mask words whole: a token with the `##` continuations after it. Words are taken in random order, those that no
    longer fit passed over, so a row's count comes near `mask_fraction` and never above it (BERT's procedure). A word
    that a row's start cuts counts from there. Needs a vocabulary with continuations."""

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask_token_fraction + self.random_token_fraction > 1 + 1e-9:
            raise ValueError(
                "mask_token_fraction and random_token_fraction must add up to at most 1, "
                f"got {self.mask_token_fraction} and {self.random_token_fraction}"
            )
        return self

    def num_masked(self, num_real_tokens: int) -> int:
        """Masked positions of a sequence of so many real tokens: at least one, rounded half to even, as in G.
        With `whole_word`, the most there may be.
        """
        return max(1, round(self.mask_fraction * num_real_tokens))
