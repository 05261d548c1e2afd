"""Which positions the generator must fill in, and what it sees there."""

from __future__ import annotations

import torch
from torch import Tensor

from electra_core.accounting import max_masked_positions
from electra_core.batches import MaskedBatch, SpecialTokens, TokenBatch
from electra_core.config import MaskingConfig
from electra_core.randomness import Draws
from electra_core.whole_words import choose_whole_words

__all__ = ["apply_mask", "max_masked_positions"]


def apply_mask(
    batch: TokenBatch,
    masking: MaskingConfig,
    special: SpecialTokens,
    draws: Draws,
    *,
    vocab_size: int | None = None,
    is_continuation: Tensor | None = None,
) -> MaskedBatch:
    """Choose positions to mask and put [MASK] at most of them.

    A row gets `max(1, min(N, round(mask_fraction · real tokens)))` positions, [CLS] and [SEP] counted as real but
    never chosen, nor [MASK] or padding. G draws *with* replacement, which counts a position drawn twice twice in the
    loss and averages its ids; here the N largest of one random number per position are taken, all different.
    With `masking.whole_word` that many is the most a row gets: see `choose_whole_words`.

    Args:
        batch: B rows of L tokens.
        masking: the shares.
        special: ids of [PAD], [CLS], [SEP] and [MASK].
        draws: this step's random numbers; only its seed and step are used, the rows are the batch's.
        vocab_size: ids that random tokens are drawn from; needed where `random_token_fraction` is above 0.
        is_continuation: bool[vocab_size], True at ids that go on with a word; needed for whole words.

    Raises:
        ValueError: random tokens are asked for without `vocab_size`, or whole words without `is_continuation`.
    """
    if masking.random_token_fraction > 0 and vocab_size is None:
        raise ValueError(
            "vocab_size must be given where masking.random_token_fraction is above 0, "
            f"got None with {masking.random_token_fraction}"
        )
    if masking.whole_word and is_continuation is None:
        raise ValueError("is_continuation must be given where masking.whole_word is true, got None")
    draws = draws.for_rows(batch.rows)
    input_ids = batch.input_ids
    length = input_ids.shape[1]
    room = max_masked_positions(masking, length)

    may_be_masked = batch.attention_mask
    for special_id in (special.pad_id, special.cls_id, special.sep_id, special.mask_id):
        may_be_masked = may_be_masked & (input_ids != special_id)

    # 63 random bits leave no ties, and what may not be masked gets negative scores that differ: the order is the same
    # on every device.
    scores = draws.words("masking.positions", length).bitwise_and_((1 << 63) - 1)
    never = -1 - torch.arange(length, device=input_ids.device)
    positions = torch.where(may_be_masked, scores, never).topk(room, dim=1).indices

    num_real = batch.attention_mask.sum(dim=1)
    # float64 and half to even: the same number as `MaskingConfig.num_masked` gives.
    wanted = (num_real.double() * masking.mask_fraction).round_().clamp_(1, room)
    wanted = torch.minimum(wanted, may_be_masked.sum(dim=1))
    if masking.whole_word and is_continuation is not None:
        chosen = choose_whole_words(may_be_masked, is_continuation[input_ids], scores, wanted.long())
        wanted = chosen.sum(dim=1)
        positions = torch.where(chosen, scores, never).topk(room, dim=1).indices
    is_masked = torch.arange(room, device=input_ids.device) < wanted[:, None]

    replacement = draws.uniform("masking.replacement", room)
    original = input_ids.gather(1, positions)
    # Filler keeps its token: to the networks it is no different from any unmasked position.
    shown = original.masked_fill(is_masked & (replacement < masking.mask_token_fraction), special.mask_id)
    if masking.random_token_fraction > 0 and vocab_size is not None:
        # The same number decides both shares, from its two ends. BERT draws from the whole vocabulary.
        shows_random = is_masked & (replacement > 1 - masking.random_token_fraction)
        random_ids = (draws.words("masking.random_tokens", room) >> 1).remainder(vocab_size)
        shown = torch.where(shows_random, random_ids, shown)
    return MaskedBatch(
        generator_input_ids=input_ids.scatter(1, positions, shown),
        original_ids=input_ids,
        attention_mask=batch.attention_mask,
        token_type_ids=batch.token_type_ids,
        masked_positions=positions,
        masked_weights=is_masked.to(torch.float32),
        rows=batch.rows,
        is_packed=batch.is_packed,
    )
