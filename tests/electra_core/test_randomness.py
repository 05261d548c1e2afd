"""Counter-based draws: pure, independent, uniform."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from electra_core.dropout import dropout, keep_count
from electra_core.randomness import Draws, _mix_, _mix_int, stream_id

ROWS = torch.arange(64)
MANY = 4096


def test_finaliser_is_splitmix64():
    # First output of the reference generator seeded with 0: the finaliser of one golden increment.
    assert _mix_int(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF


@given(st.integers(-(2**63), 2**63 - 1))
def test_tensor_and_integer_finalisers_agree(word):
    assert _mix_(torch.tensor([word])).item() % 2**64 == _mix_int(word)


def test_draws_do_not_depend_on_which_rows_are_drawn_together():
    together = Draws(7, 3, ROWS).uniform("x", 33)
    apart = torch.cat([Draws(7, 3, part).uniform("x", 33) for part in ROWS.split(5)])
    assert torch.equal(together, apart)
    assert torch.equal(together[:, :10], Draws(7, 3, ROWS).uniform("x", 10))


def test_step_may_be_a_tensor():
    for stream in ("x", 12, stream_id("x")):
        from_tensor = Draws(7, torch.tensor(5), ROWS).words(stream, 9)
        assert torch.equal(from_tensor, Draws(7, 5, ROWS).words(stream, 9))


def test_a_stream_is_its_name():
    assert torch.equal(Draws(1, 1, ROWS).words("x", 3), Draws(1, 1, ROWS).words("x", 3))
    assert stream_id("masking.positions") != stream_id("masking.replacement")


def test_numbers_stay_what_they_were():
    # A job resumed by a newer version must go on with the same numbers.
    words = Draws(1, 2, torch.tensor([3])).words("masking.positions", 2)
    assert words.tolist() == GOLDEN_WORDS


GOLDEN_WORDS = [[303873198904237326, 7189729305188510624]]


def test_uniform_is_strictly_inside():
    drawn = Draws(0, 0, torch.arange(2000)).uniform("x", 1000)
    assert drawn.dtype == torch.float32
    assert 0 < drawn.min() < 1e-5
    assert 1 - 1e-5 < drawn.max() < 1


def test_uniform_and_bytes_are_uniform():
    drawn = Draws(0, 0, ROWS)
    counts = torch.histc(drawn.uniform("x", MANY), 256, 0, 1).numpy()
    assert stats.chisquare(counts).pvalue > 1e-4
    counts = torch.bincount(drawn.bytes("y", MANY).flatten(), minlength=256).numpy()
    assert stats.chisquare(counts).pvalue > 1e-4


def neighbours():
    rows = torch.zeros(1, dtype=torch.int64)
    near = (0, 1, 2, 3)
    yield "seeds", [Draws(n, 5, rows).bytes("x", MANY) for n in near]
    yield "steps", [Draws(5, n, rows).bytes("x", MANY) for n in near]
    yield "rows", [Draws(5, 5, rows + n).bytes("x", MANY) for n in near]
    yield "streams", [Draws(5, 5, rows).bytes(n, MANY) for n in near]
    yield "seed and step swapped", [Draws(a, b, rows).bytes("x", MANY) for a, b in ((1, 2), (2, 1), (3, 0), (0, 3))]
    yield "step and row swapped", [Draws(9, a, rows + b).bytes("x", MANY) for a, b in ((1, 2), (2, 1), (3, 0), (0, 3))]


@pytest.mark.parametrize(("name", "sequences"), list(neighbours()))
def test_neighbours_are_independent(name, sequences):
    for a, b in itertools.combinations([s.flatten().double().numpy() for s in sequences], 2):
        for shift in range(-2, 3):
            assert abs(np.corrcoef(a, np.roll(b, shift))[0, 1]) < 5 / MANY**0.5, name


def test_neighbouring_columns_and_bits_are_independent():
    drawn = Draws(3, 1, torch.arange(16)).bytes("x", MANY).flatten().numpy()
    pairs = np.histogram2d(drawn[:-1] // 16, drawn[1:] // 16, bins=16)[0]
    assert stats.chisquare(pairs.flatten()).pvalue > 1e-4
    bits = np.unpackbits(drawn).reshape(-1, 64).astype(float)
    correlation = np.corrcoef(bits.T) - np.eye(64)
    assert abs(correlation).max() < 6 / len(bits) ** 0.5


def test_dropout_is_unbiased_and_follows_its_rows():
    x = torch.ones(64, 50, 40, requires_grad=True)
    dropped = dropout(x, 0.1, Draws(0, 0, ROWS), "x")
    kept = keep_count(0.1) / 256
    assert abs((dropped > 0).float().mean() - kept) < 0.003
    assert dropped.max().item() == pytest.approx(1 / kept)
    assert torch.equal(dropped[8:16], dropout(x[8:16], 0.1, Draws(0, 0, ROWS[8:16]), "x"))
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped)


@pytest.mark.parametrize("probability", [0.0, 0.001, 0.999])
def test_dropout_keeps_the_mean_at_its_ends(probability):
    x = torch.ones(64, 400)
    assert dropout(x, probability, Draws(0, 0, ROWS), "x").mean().item() == pytest.approx(1, abs=0.5)
