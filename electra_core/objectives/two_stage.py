"""Two-stage training (Clark et al. 2020, section 3.4): the generator first, then the discriminator from its weights."""

from __future__ import annotations

import torch

from electra_core.batches import MaskedBatch
from electra_core.config import ObjectiveConfig
from electra_core.embeddings import SeparateEmbeddings
from electra_core.networks import PretrainingNetworks
from electra_core.objectives.corruption import corrupt
from electra_core.objectives.electra import detect
from electra_core.objectives.sums import ObjectiveSums
from electra_core.randomness import Draws


def two_stage(
    networks: PretrainingNetworks, batch: MaskedBatch, draws: Draws, config: ObjectiveConfig
) -> ObjectiveSums:
    """MLM(generator) in stage 0, RTD against the frozen generator in stage 1; each loss has weight 1.

    The discriminator does not run in stage 0. In stage 1 the generator's loss is watched, and does not change but for
    the text. Arguments as for `electra`; `networks.stage` says which stage it is.
    """
    corruption = corrupt(networks, batch, draws, config)
    if networks.stage == 0:
        return ObjectiveSums(corruption.losses(), corruption.statistics())
    return detect(networks, corruption, draws, discriminator_weight=1.0, generator_weight=None)


def enter_stage(networks: PretrainingNetworks, stage: int, is_start: bool) -> None:
    """Freeze what the stage does not train, and at the start of stage 1 give the discriminator the generator's weights.

    Its head stays as it was initialised: the generator has none like it. An optimizer made of all parameters before
    needs no change: one that has had no gradient has no moments yet, and a frozen one is passed over.
    """
    embeddings = networks.discriminator_embeddings
    assert isinstance(embeddings, SeparateEmbeddings)  # `check_model_fits` sees to it
    if stage == 1 and is_start:
        with torch.no_grad():
            networks.discriminator.load_state_dict(networks.generator.state_dict())
            embeddings.own.load_state_dict(networks.embeddings.state_dict())
    of_generator = (networks.embeddings, networks.generator, networks.generator_head)
    of_discriminator = (embeddings, networks.discriminator, networks.discriminator_head)
    for trained_in, modules in enumerate((of_generator, of_discriminator)):
        for module in modules:
            module.requires_grad_(stage == trained_in)
