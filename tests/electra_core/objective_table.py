"""Every objective and kind of generator, for tests that hold for all of them."""

from __future__ import annotations

from tiny import SPECIAL, VOCAB_SIZE, draws, networks, shake, token_batch

from electra_core.batches import MaskedBatch, TokenBatch
from electra_core.config import MaskingConfig, ObjectiveConfig
from electra_core.masking import apply_mask
from electra_core.pretraining import ElectraForPretraining

ALL = {
    "electra": ObjectiveConfig(),
    "uniform": ObjectiveConfig(generator="uniform"),
    "unigram": ObjectiveConfig(generator="unigram"),
    "electra_15": ObjectiveConfig(name="electra_15"),
    "random_15": ObjectiveConfig(name="random_15"),
    "replace_mlm": ObjectiveConfig(name="replace_mlm", discriminator_weight=1.0),
    "all_tokens_mlm": ObjectiveConfig(name="all_tokens_mlm", discriminator_weight=1.0),
    "mlm": ObjectiveConfig(name="mlm"),
    "electric": ObjectiveConfig(name="electric"),
    "two_stage": ObjectiveConfig(name="two_stage"),
    "adversarial": ObjectiveConfig(name="adversarial"),
}
STAGES = [(name, 0) for name in ALL] + [("two_stage", 1)]
"""(row of `ALL`, stage)."""


def masking_of(name: str, mask_fraction: float = 0.15) -> MaskingConfig:
    shares = {"mask_token_fraction": 0.8, "random_token_fraction": 0.1} if name == "mlm" else {}
    return MaskingConfig(mask_fraction=mask_fraction, **shares)


def build(name: str, stage: int = 0, is_shaken: bool = True, **changes) -> ElectraForPretraining:
    if name == "two_stage":
        changes = {"generator_size_ratio": 1.0, "sharing": "none"} | changes
    net = networks(objective=ALL[name], **changes)
    if is_shaken:
        shake(net)
    net.enter_stage(stage, is_start=stage > 0)
    return net


def masked(batch: TokenBatch, name: str = "electra", mask_fraction: float = 0.15, step: int = 0) -> MaskedBatch:
    return apply_mask(batch, masking_of(name, mask_fraction), SPECIAL, draws(batch, step), vocab_size=VOCAB_SIZE)


def batch_for(name: str, rows: int = 4, mask_fraction: float = 0.15, **shape) -> MaskedBatch:
    return masked(token_batch(rows=rows, **shape), name, mask_fraction)
