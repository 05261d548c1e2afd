"""What an objective returns.

B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss, summed over the positions of one micro-batch."""

    sum: Tensor
    """0-dim float32, nats; carries gradient unless it is only watched."""
    positions: Tensor
    """Positions summed over, 0-dim float32."""
    per: Literal["num_masked", "num_real"]
    """Which count of the global batch its mean runs over: `positions`, added up, is that count."""
    weight: float | None = 1.0
    """Weight of the mean in the objective; None where the loss is only watched."""


@dataclass(frozen=True, slots=True)
class Detection:
    """What the main network thinks of each token it saw; no gradient."""

    corrupted_ids: Tensor
    """int64[B, L]; what it saw."""
    is_replaced: Tensor
    """bool[B, L]; its labels."""
    logits: Tensor
    """float32[B, L] of P(replaced)."""
    is_scored: Tensor
    """bool[B, L]; where it is asked."""


@dataclass(frozen=True, slots=True)
class ObjectiveSums:
    """Sums over the positions of one micro-batch.

    Sums and not means: the means of the objective run over the whole global batch, so whoever knows all its workers
    and micro-batches divides. What makes no sense for an objective is absent, never 0.
    """

    losses: Mapping[str, Loss]
    """By name, such as `generator_loss`."""
    statistics: Mapping[str, Tensor] = field(default_factory=dict)
    """Counts by name, 0-dim float32 without gradient; `metrics.figures` knows what they mean."""
    detection: Detection | None = None
    """For scores that are no sums (AUC), and to look at; absent where nothing is detected."""

    def total(self, num_masked: Tensor | float, num_real: Tensor | float) -> Tensor:
        """The loss to differentiate: Σ weight · sum / count over the losses that are not only watched.

        Args:
            num_masked: masked positions of the global batch.
            num_real: real positions of the global batch.
        """
        # Whole words may be too long for every row's budget: then nothing is masked, and a sum of nothing is 0.
        counts = {"num_masked": _at_least_one(num_masked), "num_real": _at_least_one(num_real)}
        terms = [
            loss.weight * (loss.sum / counts[loss.per]) for loss in self.losses.values() if loss.weight is not None
        ]
        return sum(terms[1:], start=terms[0])

    def detached(self) -> dict[str, Tensor]:
        """Everything that adds up, by name, without gradient: each loss `x` has its positions as `x_positions`."""
        sums: dict[str, Tensor] = {}
        for name, loss in self.losses.items():
            sums |= {name: loss.sum.detach(), f"{name}_positions": loss.positions.detach()}
        return sums | {name: value.detach() for name, value in self.statistics.items()}


def _at_least_one(count: Tensor | float) -> Tensor | float:
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1.0)
