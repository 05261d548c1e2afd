"""Generator and discriminator together, as they are pretrained.

B rows, L positions, N masked positions per row, M = B · N, H hidden_size, V padded_vocab_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from electra_core.batches import MaskedBatch
from electra_core.config import ModelConfig, ObjectiveConfig
from electra_core.encoder import Embeddings, Encoder
from electra_core.heads import MaskedLanguageModelHead, ReplacedTokenDetectionHead
from electra_core.objectives import OBJECTIVES
from electra_core.objectives.sums import ObjectiveSums
from electra_core.randomness import Draws


class ElectraForPretraining(nn.Module):
    """Both networks over shared embeddings. `forward` is the objective, so DistributedDataParallel can wrap it."""

    def __init__(self, model: ModelConfig, vocab_size: int, objective: ObjectiveConfig, rng: torch.Generator) -> None:
        """Build on the CPU with the original's start.

        Args:
            model: sizes of both networks.
            vocab_size: ids the tokenizer can produce.
            objective: which objective `forward` computes.
            rng: the only source of the initial weights; the global random state is not touched.
        """
        super().__init__()
        self.model_config = model
        self.vocab_size = vocab_size
        self.objective_config = objective
        generator, discriminator = model.generator(vocab_size), model.discriminator(vocab_size)
        self.embeddings = Embeddings(discriminator, rng)
        self.generator = Encoder(generator, rng, "generator")
        self.generator_head = MaskedLanguageModelHead(generator, rng)
        self.discriminator = Encoder(discriminator, rng, "discriminator")
        self.discriminator_head = ReplacedTokenDetectionHead(discriminator, rng)

    def forward(self, batch: MaskedBatch, draws: Draws) -> ObjectiveSums:
        """The objective's sums over one micro-batch."""
        return OBJECTIVES[self.objective_config.name](self, batch, draws, self.objective_config)

    def generator_hidden(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        draws: Draws | None = None,
    ) -> Tensor:
        """The generator's last hidden states, float[B, L, H].

        Args:
            input_ids: int64[B, L].
            attention_mask: bool[B, L], False at padding; None where no row has padding.
            token_type_ids: int64[B, L]; None is all 0.
            draws: needed while training with dropout.
        """
        return self._encode(self.generator, input_ids, attention_mask, token_type_ids, draws)

    def masked_hidden(self, hidden_BLH: Tensor, positions: Tensor) -> Tensor:
        """Hidden states float[M, H] at int64[B, N] positions."""
        rows, length, hidden = hidden_BLH.shape
        starts = torch.arange(0, rows * length, length, device=positions.device)[:, None]
        return hidden_BLH.reshape(rows * length, hidden).index_select(0, (positions + starts).flatten())

    def masked_logits(self, hidden_BLH: Tensor, positions: Tensor) -> Tensor:
        """Generator logits float[M, V] at int64[B, N] positions, V padded with impossible ids."""
        hidden_MH = self.masked_hidden(hidden_BLH, positions)
        logits: Tensor = self.generator_head(hidden_MH, self.embeddings.word)
        return logits

    def generator_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Generator logits float32[B, N, vocab_size] at int64[B, N] positions. Call in eval mode."""
        hidden_BLH = self.generator_hidden(input_ids, attention_mask, token_type_ids)
        logits_MV = self.masked_logits(hidden_BLH, positions).float()
        return logits_MV.view(*positions.shape, -1)[..., : self.vocab_size]

    def discriminator_hidden(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        draws: Draws | None = None,
    ) -> Tensor:
        """The discriminator's last hidden states, float[B, L, H]. Arguments as for `generator_hidden`."""
        return self._encode(self.discriminator, input_ids, attention_mask, token_type_ids, draws)

    def discriminator_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        draws: Draws | None = None,
    ) -> Tensor:
        """Logit of P(replaced) at every position, float32[B, L]. Arguments as for `generator_hidden`."""
        hidden_BLH = self.discriminator_hidden(input_ids, attention_mask, token_type_ids, draws)
        logits: Tensor = self.discriminator_head(hidden_BLH)
        return logits.float()

    def _encode(
        self,
        encoder: Encoder,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        draws: Draws | None,
    ) -> Tensor:
        embedded = self.embeddings(input_ids, token_type_ids, draws, encoder.embeddings_stream)
        hidden: Tensor = encoder(embedded, attention_mask, draws)
        return hidden
