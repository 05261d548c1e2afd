"""A pretrained encoder with a task's head on it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from electra_core.batches import TokenBatch
from electra_core.config import EncoderConfig, HeadConfig
from electra_core.encoder import Embeddings, Encoder
from electra_core.finetuning.heads import make_head
from electra_core.randomness import Draws


class ElectraForFinetuning(nn.Module):
    """Embeddings, encoder and head. Built with a start from `rng`; pretrained weights are loaded over it.

    Args:
        encoder: sizes of the pretrained network; its dropout is what finetuning drops.
        head: what is predicted.
        rng: the only source of the initial weights.
    """

    def __init__(self, encoder: EncoderConfig, head: HeadConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.encoder_config = encoder
        self.head_config = head
        self.embeddings = Embeddings(encoder, rng)
        self.encoder = Encoder(encoder, rng, "encoder")
        self.head = make_head(encoder, head, rng)

    def forward(self, batch: TokenBatch, draws: Draws | None = None) -> Tensor:
        """Logits of a batch.

        Args:
            batch: rows of tokens, padded to one length; a row for each choice of a multiple choice.
            draws: for dropout; needed while training alone.

        Returns:
            float32[B, C] for texts and choices, float32[B, L, C] for tokens; of a question's answer C is 2, start and
            end.
        """
        embedded = self.embeddings(batch.input_ids, batch.token_type_ids, draws, self.encoder.embeddings_stream)
        hidden = self.encoder(embedded, None if batch.is_packed else batch.attention_mask, draws)
        logits: Tensor = self.head(hidden, draws)
        return logits.float()
