"""The objectives, by the name a spec gives them. Nothing else in a training loop knows which one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.objectives.electra import electra
from electra_core.objectives.sums import ObjectiveSums
from electra_core.randomness import Draws

if TYPE_CHECKING:
    from electra_core.pretraining import ElectraForPretraining

__all__ = ["OBJECTIVES", "Objective", "ObjectiveSums"]


class Objective(Protocol):
    """From networks and a batch to sums of losses and statistics."""

    def __call__(
        self, networks: ElectraForPretraining, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
    ) -> ObjectiveSums:
        """Run the networks on a batch."""
        ...


OBJECTIVES: dict[str, Objective] = {"electra": electra}
