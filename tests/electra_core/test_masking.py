"""Masking: how many positions, which, and what the generator sees there."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import SPECIAL, VOCAB_SIZE, draws, masked_batch, token_batch

from electra_core.batches import TokenBatch
from electra_core.config import MaskingConfig
from electra_core.masking import apply_mask, max_masked_positions
from electra_core.randomness import Draws

UNTOUCHABLE = (SPECIAL.pad_id, SPECIAL.cls_id, SPECIAL.sep_id, SPECIAL.mask_id)


@st.composite
def batches(draw):
    length = draw(st.integers(4, 40))
    rows = draw(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=length), min_size=1, max_size=4))
    ids = torch.tensor([row + [SPECIAL.pad_id] * (length - len(row)) for row in rows])
    first = draw(st.integers(0, 10**6))
    return TokenBatch(ids, ids != SPECIAL.pad_id, torch.arange(first, first + len(rows)))


def mask(batch, fraction=0.15, step=0):
    return apply_mask(batch, MaskingConfig(mask_fraction=fraction), SPECIAL, draws(batch, step))


@pytest.mark.parametrize(
    ("length", "fraction", "room"), [(128, 0.15, 19), (512, 0.15, 79), (512, 0.25, 130), (4, 0.15, 1)]
)
def test_room_is_the_originals(length, fraction, room):
    assert max_masked_positions(MaskingConfig(mask_fraction=fraction), length) == room


@settings(deadline=None)
@given(batches(), st.sampled_from([0.1, 0.15, 0.25, 0.5, 0.9]))
def test_count_is_a_fraction_of_real_tokens(batch, fraction):
    masking = MaskingConfig(mask_fraction=fraction)
    room = max_masked_positions(masking, batch.input_ids.shape[1])
    for row, weights in zip(batch.input_ids, mask(batch, fraction).masked_weights, strict=True):
        num_real = int((row != SPECIAL.pad_id).sum())
        num_maskable = sum(token not in UNTOUCHABLE for token in row.tolist())
        assert int(weights.sum()) == min(max(1, min(room, masking.num_masked(num_real))), num_maskable)


@settings(deadline=None)
@given(batches())
def test_special_tokens_and_padding_are_never_masked(batch):
    masked = mask(batch)
    chosen = masked.original_ids.gather(1, masked.masked_positions)[masked.masked_weights > 0]
    assert not set(chosen.tolist()) & set(UNTOUCHABLE)


@settings(deadline=None)
@given(batches())
def test_positions_differ_and_nothing_else_changes(batch):
    masked = mask(batch, 0.5)
    assert all(len(set(row)) == len(row) for row in masked.masked_positions.tolist())
    weights = torch.zeros_like(masked.original_ids, dtype=torch.float32)
    weights.scatter_(1, masked.masked_positions, masked.masked_weights)
    changed = masked.generator_input_ids != masked.original_ids
    assert torch.equal(masked.original_ids, batch.input_ids)
    assert not (changed & (weights == 0)).any()
    assert (masked.generator_input_ids[changed] == SPECIAL.mask_id).all()


def test_unknown_tokens_may_be_masked():
    ids = torch.full((4, 20), SPECIAL.unk_id)
    batch = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), torch.arange(4))
    assert mask(batch).num_masked == 4 * 3


def test_a_row_of_special_tokens_masks_nothing():
    ids = torch.tensor([[2, 3, 0, 0]])
    assert mask(TokenBatch(ids, ids != 0, torch.arange(1))).num_masked == 0


def test_shares_of_mask_tokens_and_positions_are_right():
    masked = mask(token_batch(rows=2000, length=24))
    shows_mask = (masked.generator_input_ids == SPECIAL.mask_id).sum() / masked.num_masked
    assert shows_mask.item() == pytest.approx(0.85, abs=0.015)
    per_position = torch.bincount(masked.masked_positions[masked.masked_weights > 0], minlength=24)[1:-1].double()
    chi_square = ((per_position - per_position.mean()) ** 2 / per_position.mean()).sum()
    assert chi_square < 50  # 21 degrees of freedom


def test_bert_shows_random_tokens_at_a_share_of_masked_positions():
    batch = token_batch(rows=2000, length=24)
    masking = MaskingConfig(mask_token_fraction=0.8, random_token_fraction=0.1)
    masked = apply_mask(batch, masking, SPECIAL, draws(batch), vocab_size=VOCAB_SIZE)
    shown, original = (ids.gather(1, masked.masked_positions) for ids in (masked.generator_input_ids, batch.input_ids))
    shares = [(shown == SPECIAL.mask_id), (shown == original), (shown != original) & (shown != SPECIAL.mask_id)]
    # A random token is [MASK] or the original once in a hundred.
    expected = (0.8 + 0.001, 0.1 + 0.001, 0.1 - 0.002)
    for share, fraction in zip(shares, expected, strict=True):
        weight = (share * masked.masked_weights).sum() / masked.num_masked
        assert weight.item() == pytest.approx(fraction, abs=0.01)
    assert torch.equal(mask(batch).masked_positions, masked.masked_positions)
    with pytest.raises(ValueError, match="vocab_size must be given"):
        apply_mask(batch, masking, SPECIAL, draws(batch))


def test_masks_do_not_depend_on_how_rows_are_shared():
    whole = masked_batch(rows=8, padded=True)
    batch = token_batch(rows=8, padded=True)
    for start in (0, 4):
        part = TokenBatch(*(t[start : start + 4] for t in (batch.input_ids, batch.attention_mask, batch.rows)))
        masked = mask(part)
        assert torch.equal(masked.masked_positions, whole.masked_positions[start : start + 4])
        assert torch.equal(masked.generator_input_ids, whole.generator_input_ids[start : start + 4])


def test_each_step_masks_other_positions():
    batch = token_batch(rows=8)
    assert not torch.equal(mask(batch, step=0).masked_positions, mask(batch, step=1).masked_positions)


def test_split_is_a_view_of_the_whole():
    masked = masked_batch(rows=6, padded=True)
    parts = masked.split(3)
    assert [part.rows.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert torch.equal(torch.cat([p.masked_positions for p in parts]), masked.masked_positions)
    assert sum(p.num_real for p in parts) == masked.num_real == masked.attention_mask.sum()
    with pytest.raises(ValueError, match="divide the rows"):
        masked.split(4)


def test_packed_batch_counts_its_positions():
    masked = masked_batch(rows=6)
    assert masked.is_packed
    assert masked.num_real == 6 * 24


def test_seeds_steps_and_rows_may_be_huge_or_negative():
    ids = torch.randint(5, VOCAB_SIZE, (2, 16))
    batch = TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([10**12, 2**62]))
    assert apply_mask(batch, MaskingConfig(), SPECIAL, Draws(-5, 10**9, batch.rows)).num_masked == 4
