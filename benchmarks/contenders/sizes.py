"""What is trained: the sizes of networks and batch, the same for every contender."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from electra_core.accounting import training_flops_per_token
from electra_core.batches import MaskedBatch, SpecialTokens, TokenBatch
from electra_core.config import MaskingConfig, ModelConfig, ObjectiveConfig
from electra_core.masking import apply_mask
from electra_core.pretraining import ElectraForPretraining
from electra_core.randomness import Draws
from pipelines.specs.presets import PRESETS

SPECIAL = SpecialTokens(pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4)
SEED = 0
_NUM_BATCHES = 4


@dataclass(frozen=True)
class Size:
    """One step's size."""

    name: str
    model: ModelConfig
    masking: MaskingConfig
    rows: int
    length: int
    vocab_size: int = 30_522

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def flops(self) -> float:
        """Matrix products of one step."""
        return self.tokens * training_flops_per_token(self.model, self.masking, self.vocab_size, self.length).total

    def num_padding(self, rows: int) -> int:
        """Parameters that pad the vocabulary to `rows`: in the word embeddings, and in the bias over it."""
        return (rows - self.vocab_size) * (self.model.embedding_size + 1)


def size_of(preset: str, rows: int, length: int, dropout: float = 0.1) -> Size:
    """A preset's networks, with dropout also where the preset has none."""
    spec = PRESETS[preset]()
    changes = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = ModelConfig.model_validate({**dict(spec.model), **changes})
    return Size(preset, model, spec.masking, rows, length)


def networks_of(size: Size) -> ElectraForPretraining:
    """The same weights in every process. Biases and LayerNorms are moved from their start, so that the comparison of
    losses would notice one that is left out.
    """
    rng = torch.Generator().manual_seed(SEED)
    networks = ElectraForPretraining(size.model, size.vocab_size, ObjectiveConfig(), rng)
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng), alpha=0.02)
        networks.embeddings.word[size.vocab_size :] = 0.0  # rows no token uses
    return networks


def batches_of(size: Size, device: torch.device) -> list[TokenBatch]:
    """Full rows of ids drawn as words are: the logarithm of their rank is uniform."""
    rng = torch.Generator().manual_seed(SEED)
    first_word = 5
    batches = []
    for _ in range(_NUM_BATCHES):
        uniform = torch.rand(size.rows, size.length, generator=rng, dtype=torch.float64)
        ids = first_word - 1 + (size.vocab_size - first_word + 1) ** uniform
        ids = ids.long()
        ids[:, 0], ids[:, -1] = SPECIAL.cls_id, SPECIAL.sep_id
        mask = torch.ones_like(ids, dtype=torch.bool)
        rows = torch.arange(size.rows)
        batches.append(TokenBatch(ids.to(device), mask.to(device), rows.to(device), is_packed=True))
    return batches


def question(size: Size, device: torch.device) -> tuple[MaskedBatch, torch.Tensor]:
    """What every contender must answer alike: a masked batch, and the same rows with about half of the masked
    positions replaced, int64[B, L].
    """
    batch = batches_of(size, device)[0]
    masked = apply_mask(batch, size.masking, SPECIAL, Draws(SEED, 0, batch.rows))
    rng = torch.Generator().manual_seed(SEED)
    shape = masked.masked_positions.shape
    others = torch.randint(5, size.vocab_size, shape, generator=rng).to(device)
    is_replaced = (torch.rand(shape, generator=rng) < 0.5).to(device) & (masked.masked_weights > 0)
    original = masked.original_ids.gather(1, masked.masked_positions)
    samples = torch.where(is_replaced, others, original)
    return masked, masked.original_ids.scatter(1, masked.masked_positions, samples)
