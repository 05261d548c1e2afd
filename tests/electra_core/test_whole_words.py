"""Whole words: masked together or not at all, as many as fit, the same however the rows are shared out."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny import SPECIAL, draws

from electra_core.batches import TokenBatch
from electra_core.config import MaskingConfig
from electra_core.masking import apply_mask, max_masked_positions
from electra_core.whole_words import choose_whole_words, num_rounds, take_in_order

FIRST_CONTINUATION = 50
IS_CONTINUATION = torch.arange(100) >= FIRST_CONTINUATION
SPECIALS = (SPECIAL.pad_id, SPECIAL.cls_id, SPECIAL.sep_id, SPECIAL.mask_id)
FRACTIONS = st.sampled_from([0.1, 0.15, 0.25, 0.5, 0.9])


def words_of(row):
    """Positions of each word of a row of ids, in plain Python."""
    words = []
    for position, token in enumerate(row):
        if token in SPECIALS:
            continue
        goes_on = token >= FIRST_CONTINUATION and position > 0 and row[position - 1] not in SPECIALS
        if goes_on:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def taken_one_by_one(sizes, budget):
    """BERT's way: from the left, passing over what does not fit."""
    taken = []
    for size in sizes:
        taken.append(size <= budget)
        budget -= size * taken[-1]
    return taken


@st.composite
def batches(draw):
    length = draw(st.integers(4, 60))
    token = st.one_of(st.integers(1, FIRST_CONTINUATION - 1), st.integers(FIRST_CONTINUATION, 99))
    rows = draw(st.lists(st.lists(token, min_size=1, max_size=length), min_size=1, max_size=4))
    ids = torch.tensor([row + [SPECIAL.pad_id] * (length - len(row)) for row in rows])
    first = draw(st.integers(0, 10**6))
    return TokenBatch(ids, ids != SPECIAL.pad_id, torch.arange(first, first + len(rows)))


def mask(batch, fraction=0.15, step=0):
    masking = MaskingConfig(mask_fraction=fraction, whole_word=True)
    return apply_mask(batch, masking, SPECIAL, draws(batch, step), is_continuation=IS_CONTINUATION)


def chosen_positions(masked):
    """The set of masked positions of each row."""
    pairs = zip(masked.masked_positions.tolist(), masked.masked_weights.tolist(), strict=True)
    return [{p for p, w in zip(positions, weights, strict=True) if w} for positions, weights in pairs]


@settings(deadline=None)
@given(batches(), FRACTIONS)
def test_words_are_masked_whole_within_the_budget_and_special_tokens_never(batch, fraction):
    masking = MaskingConfig(mask_fraction=fraction)
    room = max_masked_positions(masking, batch.input_ids.shape[1])
    for row, chosen in zip(batch.input_ids.tolist(), chosen_positions(mask(batch, fraction)), strict=True):
        words = words_of(row)
        left_out = [word for word in words if not chosen & set(word)]
        assert all(set(word) <= chosen for word in words if word not in left_out)
        assert chosen <= {position for word in words for position in word}
        num_real = sum(token != SPECIAL.pad_id for token in row)
        left = min(room, masking.num_masked(num_real), num_real) - len(chosen)
        assert left >= 0
        assert all(len(word) > left for word in left_out), "a word was left out that would have fitted"


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), min_size=20, max_size=20), min_size=1, max_size=4), st.integers(0, 70))
@example([[1, 9, 1, 8, 1, 7, 1, 6, 1, 5, 1, 4, 1, 3, 1, 2, 1, 1, 1, 1]], 10)
def test_rounds_take_what_one_pass_would(rows, budget):
    """Where one row's sizes add up to its length or less, as those of words do, the rounds are enough."""
    sizes = torch.tensor(rows)
    rounds = num_rounds(int(sizes.sum(dim=1).max()))
    taken = take_in_order(sizes, torch.full((len(rows),), budget), rounds)
    assert taken.tolist() == [taken_one_by_one(row, budget) for row in rows]


def test_the_worst_row_needs_all_its_rounds():
    """1, 14, 1, 13, … with 14 to fill: each round takes a single 1, and the row has 118 tokens."""
    sizes = [size for k in range(13) for size in (1, 14 - k)] + [1]
    assert sum(sizes) == 118
    assert num_rounds(sum(sizes)) == 14
    row, budget = torch.tensor([sizes]), torch.tensor([14])
    assert take_in_order(row, budget, 14)[0].tolist() == taken_one_by_one(sizes, 14)
    assert take_in_order(row, budget, 13)[0].tolist() != taken_one_by_one(sizes, 14)


def test_words_go_in_the_order_of_their_first_tokens_scores():
    follows = torch.tensor([[False, True, False, True, True, False]])
    scores = torch.tensor([[5, 99, 7, 98, 97, 6]])
    anywhere = torch.ones_like(follows)
    for budget, expected in ((2, [5]), (3, [2, 3, 4]), (5, [2, 3, 4, 5]), (6, [0, 1, 2, 3, 4, 5])):
        chosen = choose_whole_words(anywhere, follows, scores, torch.tensor([budget]))
        assert chosen[0].nonzero().flatten().tolist() == expected


@settings(deadline=None)
@given(batches(), st.integers(0, 5))
def test_a_rows_mask_does_not_depend_on_its_neighbours(batch, step):
    whole = mask(batch, 0.3, step)
    for i in range(len(batch.rows)):
        part = mask(TokenBatch(*(t[i : i + 1] for t in (batch.input_ids, batch.attention_mask, batch.rows))), 0.3, step)
        assert torch.equal(part.masked_positions[0], whole.masked_positions[i])
        assert torch.equal(part.generator_input_ids[0], whole.generator_input_ids[i])


def english(rows=1000, length=64):
    """Rows in which about every fourth token goes on with a word."""
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(5, FIRST_CONTINUATION, (rows, length), generator=rng)
    ids += FIRST_CONTINUATION * (torch.rand(rows, length, generator=rng) < 0.25)
    ids[:, 0], ids[:, -1] = SPECIAL.cls_id, SPECIAL.sep_id
    return TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), torch.arange(rows), is_packed=True)


def test_the_share_is_near_the_fraction_and_no_position_is_favoured():
    batch = english()
    masked = mask(batch)
    assert masked.num_masked / 1000 == pytest.approx(9, rel=0.005)  # the room: int(0.155 · 64)
    counts = torch.bincount(masked.masked_positions[masked.masked_weights > 0], minlength=64)[1:-1].double()
    # Words are masked together, so neighbours are not independent: about twice the spread of free draws.
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 200  # 61 degrees of freedom


def test_continuations_are_masked_somewhat_less_often_than_beginnings():
    """The price of BERT's procedure: the longer a word, the sooner it no longer fits."""
    masked = mask(english())
    chosen = masked.original_ids.gather(1, masked.masked_positions)[masked.masked_weights > 0]
    share = (chosen >= FIRST_CONTINUATION).double().mean().item()
    of_all = (masked.original_ids >= FIRST_CONTINUATION).sum().item() / (1000 * 62)
    assert 0.8 < share / of_all < 1


def test_without_continuations_it_is_plain_masking():
    batch = english()
    masking = MaskingConfig(whole_word=True)
    nothing_continues = torch.zeros(100, dtype=torch.bool)
    words = apply_mask(batch, masking, SPECIAL, draws(batch), is_continuation=nothing_continues)
    tokens = apply_mask(batch, MaskingConfig(), SPECIAL, draws(batch))
    assert torch.equal(words.masked_positions, tokens.masked_positions)


def test_whole_words_without_continuations_are_refused():
    batch = english(rows=1)
    with pytest.raises(ValueError, match="is_continuation must be given"):
        apply_mask(batch, MaskingConfig(whole_word=True), SPECIAL, draws(batch))


def test_shapes_do_not_depend_on_values_and_nothing_comes_from_another_device():
    """On the device `meta` there are no values: what reads one, or mixes devices, fails."""
    batch = english(rows=3)
    there = TokenBatch(*(t.to("meta") for t in (batch.input_ids, batch.attention_mask, batch.rows)))
    masked = apply_mask(
        there, MaskingConfig(whole_word=True), SPECIAL, draws(there), is_continuation=IS_CONTINUATION.to("meta")
    )
    assert (masked.masked_positions.shape, masked.masked_positions.device.type) == ((3, 9), "meta")
