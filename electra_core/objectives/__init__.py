"""The objectives, by the name a spec gives them. Nothing else in a training loop knows which one runs."""

from __future__ import annotations

from typing import Protocol

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig, ObjectiveName
from electra_core.networks import PretrainingNetworks
from electra_core.objectives.adversarial import adversarial
from electra_core.objectives.electra import electra, electra_15, random_15
from electra_core.objectives.electric import electric
from electra_core.objectives.language_modelling import all_tokens_mlm, mlm, replace_mlm
from electra_core.objectives.sums import Detection, Loss, ObjectiveSums
from electra_core.objectives.two_stage import two_stage
from electra_core.randomness import Draws

__all__ = ["OBJECTIVES", "Detection", "Loss", "Objective", "ObjectiveSums"]


class Objective(Protocol):
    """From networks and a batch to sums of losses and statistics."""

    def __call__(
        self, networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
    ) -> ObjectiveSums:
        """Run the networks on a batch."""
        ...


OBJECTIVES: dict[ObjectiveName, Objective] = {
    "electra": electra,
    "electra_15": electra_15,
    "random_15": random_15,
    "replace_mlm": replace_mlm,
    "all_tokens_mlm": all_tokens_mlm,
    "mlm": mlm,
    "electric": electric,
    "two_stage": two_stage,
    "adversarial": adversarial,
}
