"""A two-tower cloze network: the probability of every token given all others, in one pass (Electric's generator).

B rows, L positions, E embedding_size, H hidden_size of one tower.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_core.config import EncoderConfig
from electra_core.encoder import MASKED_SCORE, Embeddings, Encoder
from electra_core.randomness import Draws


class ClozeTowers(nn.Module):
    """One Transformer reads from the left, one from the right; at each position stands what both know without it.

    Source: Clark et al. 2020 (Electric), arXiv:2012.08561, section 2.3, after Baevski et al. 2019.
    """

    def __init__(self, config: EncoderConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.left_to_right = Encoder(config, rng, "generator.left_to_right")
        self.right_to_left = Encoder(config, rng, "generator.right_to_left")

    def forward(
        self,
        embeddings: Embeddings,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        draws: Draws | None,
    ) -> Tensor:
        """Encode the unmasked int64[B, L].

        Args:
            embeddings: both towers read the same.
            input_ids: int64[B, L].
            attention_mask: bool[B, L], False at padding; None where no row has padding.
            token_type_ids: int64[B, L]; None is all 0.
            draws: for dropout while training.

        Returns:
            float[B, L, 2H]; at position t the left tower's state at t − 1 and the right tower's at t + 1, so nothing
            of token t itself. Past either end, and at padding, stand zeros (G rolls around, which shows the ends
            everything).
        """
        length = input_ids.shape[1]
        is_behind = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).tril()
        states = []
        for tower, may_see in ((self.left_to_right, is_behind), (self.right_to_left, is_behind.T)):
            embedded = embeddings(input_ids, token_type_ids, draws, tower.embeddings_stream)
            state_BLH = tower.encode(embedded, _bias(may_see, attention_mask, embedded.dtype), draws)
            states.append(state_BLH if attention_mask is None else state_BLH * attention_mask[:, :, None])
        return torch.cat([F.pad(states[0][:, :-1], (0, 0, 1, 0)), F.pad(states[1][:, 1:], (0, 0, 0, 1))], dim=-1)


def _bias(may_see: Tensor, attention_mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """float[1 or B, 1, L, L] to add to the attention scores; every position may at least see itself.

    A padded position that could see nothing would see everything: its scores would all be equally low.
    """
    if attention_mask is not None:
        itself = torch.eye(may_see.shape[0], dtype=torch.bool, device=may_see.device)
        may_see = may_see & (attention_mask[:, None, None, :] | itself)
    else:
        may_see = may_see[None, None]
    return (~may_see).to(dtype) * MASKED_SCORE
