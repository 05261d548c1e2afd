"""The networks of an objective as they are pretrained: `forward` is the objective."""

from __future__ import annotations

from electra_core.batches import MaskedBatch
from electra_core.networks import PretrainingNetworks
from electra_core.objectives import OBJECTIVES
from electra_core.objectives.sums import ObjectiveSums
from electra_core.objectives.two_stage import enter_stage as enter_stage_of_two
from electra_core.randomness import Draws


class ElectraForPretraining(PretrainingNetworks):
    """Networks that compute their objective, so that DistributedDataParallel can wrap them."""

    def forward(self, batch: MaskedBatch, draws: Draws) -> ObjectiveSums:
        """The objective's sums over one micro-batch."""
        return OBJECTIVES[self.objective_config.name](self, batch, draws, self.objective_config)

    def enter_stage(self, stage: int, is_start: bool) -> None:
        """Go to a stage of the objective; most have only stage 0.

        Args:
            stage: of `ObjectiveConfig.stage_at`.
            is_start: the next step is the first of the stage: weights that are taken over are copied now, and no
                checkpoint has them yet.
        """
        self.stage = stage
        if self.objective_config.name == "two_stage":
            enter_stage_of_two(self, stage, is_start)
