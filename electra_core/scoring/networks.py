"""One pretrained network with the head it was pretrained with: what judges text without any training.

B rows, L positions, N chosen positions per row, M = B · N, V padded_vocab_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from electra_core.batches import TokenBatch
from electra_core.config import EncoderConfig
from electra_core.encoder import Embeddings, Encoder
from electra_core.heads import MaskedLanguageModelHead, ReplacedTokenDetectionHead


class _Network(nn.Module):
    def __init__(self, config: EncoderConfig, name: str) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)  # of weights that are loaded over
        self.config = config
        self.embeddings = Embeddings(config, rng)
        self.encoder = Encoder(config, rng, name)

    def hidden(self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None = None) -> Tensor:
        """The last hidden states, float[B, L, H].

        Args:
            input_ids: int64[B, L].
            attention_mask: bool[B, L], False at padding; None where no row has padding.
            token_type_ids: int64[B, L]; None is all 0.
        """
        embedded = self.embeddings(input_ids, token_type_ids, None, self.encoder.embeddings_stream)
        hidden: Tensor = self.encoder(embedded, attention_mask, None)
        return hidden


class Discriminator(_Network):
    """Tells replaced tokens from original ones; `ElectraForPreTraining` of Transformers. Call in eval mode."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, "discriminator")
        self.head = ReplacedTokenDetectionHead(config, torch.Generator().manual_seed(0))

    def forward(self, batch: TokenBatch) -> Tensor:
        """Logits of P(replaced), float32[B, L]."""
        mask = None if batch.is_packed else batch.attention_mask
        logits: Tensor = self.head(self.hidden(batch.input_ids, mask, batch.token_type_ids))
        return logits.float()


class MaskedLanguageModel(_Network):
    """Fills masked positions, as a generator does; `ElectraForMaskedLM` of Transformers. Call in eval mode."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, "generator")
        self.head = MaskedLanguageModelHead(config, torch.Generator().manual_seed(0))
