"""Rows of two segments: what stands where, how often, and that no text is lost on the way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from electra_core.batches import SpecialTokens, TokenBatch
from electra_core.randomness import Draws
from electra_core.segments import split_rows

SPECIAL = SpecialTokens(0, 1, 2, 3, 4)
CLS, SEP = SPECIAL.cls_id, SPECIAL.sep_id


def full_rows(num: int, length: int, first_row: int = 0) -> TokenBatch:
    """[CLS] 10 11 12 … [SEP], the same in every row."""
    ids = torch.full((num, length), CLS)
    ids[:, 1:-1] = torch.arange(10, 10 + length - 2)
    ids[:, -1] = SEP
    rows = torch.arange(first_row, first_row + num)
    return TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), rows, is_packed=True)


def split(batch: TokenBatch, fraction: float = 1.0, step: int = 5) -> tuple[Tensor, Tensor]:
    parted = split_rows(batch, fraction, SPECIAL, Draws(7, step, batch.rows))
    assert parted.token_type_ids is not None
    return parted.input_ids, parted.token_type_ids


@pytest.mark.parametrize("length", [5, 8, 9, 64, 128])
def test_every_row_reads_cls_a_sep_b_sep(length: int) -> None:
    batch = full_rows(200, length)
    ids, types = split(batch)
    for row, kinds in zip(ids.tolist(), types.tolist(), strict=True):
        begin = kinds.index(1)
        assert kinds == [0] * begin + [1] * (length - begin)
        first, second = row[1 : begin - 1], row[begin:-1]
        assert (row[0], row[begin - 1], row[-1]) == (CLS, SEP, SEP)
        assert first
        assert second
        assert first + second == list(range(10, 10 + length - 3)), "all the text but its last token, in order"


def test_the_cut_lies_between_a_quarter_and_three_quarters_and_anywhere_there() -> None:
    _, types = split(full_rows(20_000, 23))  # 20 tokens of text
    sizes = (types.argmax(dim=1) - 2).tolist()
    assert set(sizes) == set(range(5, 16))
    counts = torch.bincount(torch.tensor(sizes))[5:]
    expected = 20_000 / 11
    assert ((counts - expected) ** 2 / expected).sum() < 29.6, "χ² with 10 degrees of freedom, p 0.001"


def test_so_many_rows_have_two_segments_and_the_others_are_as_they_were() -> None:
    batch = full_rows(10_000, 16)
    ids, types = split(batch, 0.9)
    has_two = types.any(dim=1)
    assert has_two.float().mean().item() == pytest.approx(0.9, abs=0.01)
    assert torch.equal(ids[~has_two], batch.input_ids[~has_two])


def test_a_row_depends_on_seed_step_and_row_alone() -> None:
    """Whichever worker has it, among whichever others."""
    ids, types = split(full_rows(8, 32))
    part, part_types = split(full_rows(3, 32, first_row=4))
    assert torch.equal(part, ids[4:7])
    assert torch.equal(part_types, types[4:7])
    other, _ = split(full_rows(8, 32), step=6)
    assert not torch.equal(other, ids)


def test_borders_of_documents_stay_text() -> None:
    """They are [SEP] too, and move no token type."""
    batch = full_rows(50, 16)
    batch.input_ids[:, 6] = SEP
    ids, types = split(batch)
    for row, kinds in zip(ids.tolist(), types.tolist(), strict=True):
        begin = kinds.index(1)
        assert row[1 : begin - 1] + row[begin:-1] == batch.input_ids[0, 1:-2].tolist()


def test_rows_too_short_for_two_segments_have_one() -> None:
    batch = full_rows(4, 4)
    ids, types = split(batch)
    assert torch.equal(ids, batch.input_ids)
    assert not types.any()


def test_rows_with_padding_are_refused() -> None:
    batch = full_rows(2, 8)
    with pytest.raises(ValueError, match=r"^rows must be packed to be parted in two segments"):
        split_rows(TokenBatch(batch.input_ids, batch.attention_mask, batch.rows), 1.0, SPECIAL, Draws(7, 0, batch.rows))
