"""Tiny networks and batches the tests of this folder share."""

from __future__ import annotations

import torch

from electra_core.batches import MaskedBatch, SpecialTokens, TokenBatch
from electra_core.config import MaskingConfig, ModelConfig, ObjectiveConfig
from electra_core.masking import apply_mask
from electra_core.noise import noise_weights
from electra_core.pretraining import ElectraForPretraining
from electra_core.randomness import Draws

torch.set_num_threads(1)

SPECIAL = SpecialTokens(pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4)
VOCAB_SIZE = 100


def model_config(**changes) -> ModelConfig:
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "embedding_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
        "generator_size_ratio": 0.5,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.15,
    }
    return ModelConfig.model_validate(sizes | changes)


def networks(seed: int = 0, objective: ObjectiveConfig | None = None, **changes) -> ElectraForPretraining:
    rng = torch.Generator().manual_seed(seed)
    objective = objective or ObjectiveConfig()
    noise = None
    if objective.generator != "transformer":
        counts = torch.arange(VOCAB_SIZE) ** 2 if objective.generator == "unigram" else None
        noise = noise_weights(VOCAB_SIZE, SPECIAL, counts)
    return ElectraForPretraining(model_config(**changes), VOCAB_SIZE, objective, rng, noise)


def shake(module: torch.nn.Module, seed: int = 1) -> None:
    """Make biases and LayerNorms differ from their start, so that a test can see them."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng), alpha=0.05)


def token_batch(rows: int = 4, length: int = 24, padded: bool = False, seed: int = 0, first_row: int = 0) -> TokenBatch:
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCAB_SIZE, (rows, length), generator=rng)
    lengths = torch.full((rows,), length)
    if padded:
        lengths = torch.randint(4, length + 1, (rows,), generator=rng)
    is_real = torch.arange(length) < lengths[:, None]
    ids[:, 0] = SPECIAL.cls_id
    ids[torch.arange(rows), lengths - 1] = SPECIAL.sep_id
    ids = ids.masked_fill(~is_real, SPECIAL.pad_id)
    return TokenBatch(ids, is_real, torch.arange(first_row, first_row + rows), is_packed=not padded)


def draws(batch: TokenBatch | MaskedBatch, step: int = 0, seed: int = 0) -> Draws:
    return Draws(seed, step, batch.rows)


def masked_batch(step: int = 0, mask_fraction: float = 0.15, **shape) -> MaskedBatch:
    batch = token_batch(**shape)
    return apply_mask(batch, MaskingConfig(mask_fraction=mask_fraction), SPECIAL, draws(batch, step))
