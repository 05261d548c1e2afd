"""Our step, as `pipelines.training.train_loop` runs it, without loader, telemetry and checkpoints."""

from __future__ import annotations

from dataclasses import replace

import torch

from contenders.agreement import DTYPES, Answer, Contender, answered
from contenders.sizes import SEED, SPECIAL, Size, batches_of, networks_of, question
from electra_core.config import OptimizerConfig
from electra_core.masking import apply_mask
from electra_core.objectives import ObjectiveSums
from electra_core.objectives.corruption import corrupt
from electra_core.objectives.electra import detect
from electra_core.optimizer import clip_by_global_norm, make_optimizer, set_learning_rate
from electra_core.randomness import Draws
from pipelines.specs.compute import Precision
from pipelines.training.precision import muon_products_dtype

LEARNING_RATE = 1e-4


class Ours(Contender):
    """Masking, both networks forward and backward, clip, optimizer."""

    def __init__(
        self, size: Size, precision: Precision, device: torch.device, optimizer: OptimizerConfig | None = None
    ) -> None:
        self.size, self.device = size, device
        self.networks = networks_of(size).to(device).train()
        self._config = optimizer or OptimizerConfig()
        products_dtype = muon_products_dtype(precision, device)
        self._optimizer = make_optimizer(self.networks, self._config, products_dtype=products_dtype)
        self._parameters = list(self.networks.parameters())
        self._batches = batches_of(size, device)
        self._weight = self.networks.objective_config.discriminator_weight
        self._dtype, self._uses_autocast = DTYPES[precision], precision == "bf16"
        self._step = 0

    def step(self) -> None:
        batch = self._batches[self._step % len(self._batches)]
        draws = Draws(SEED, self._step, batch.rows)
        masked = apply_mask(batch, self.size.masking, SPECIAL, draws)
        with self._autocast():
            sums: ObjectiveSums = self.networks(masked, draws)
        sums.total(masked.num_masked, masked.num_real).backward()
        clip_by_global_norm(self._parameters, self._config.max_grad_norm)
        set_learning_rate(self._optimizer, LEARNING_RATE)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1

    def answer(self) -> Answer:
        masked, corrupted = question(self.size, self.device)
        draws = Draws(SEED, 0, masked.rows)
        self.networks.eval()
        with self._autocast():
            # The objective's own steps, with given samples in place of the generator's.
            corruption = corrupt(self.networks, masked, draws, self.networks.objective_config)
            corruption = replace(corruption, corrupted_ids=corrupted, is_replaced=corrupted != masked.original_ids)
            sums = detect(self.networks, corruption, draws, self._weight)
        generator_loss = sums.losses["generator_loss"].sum / masked.num_masked
        discriminator_loss = sums.losses["discriminator_loss"].sum / masked.num_real
        num_padding = self.size.num_padding(self.networks.embeddings.word.shape[0])
        answer = answered(self.networks, generator_loss, discriminator_loss, self._weight, num_padding)
        self.networks.train()
        return answer

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=self._dtype, enabled=self._uses_autocast)
