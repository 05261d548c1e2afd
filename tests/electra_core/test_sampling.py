"""Sampling from the generator: exact, in float32, never an impossible id."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from electra_core.randomness import Draws
from electra_core.sampling import sample, sampling_weights

MANY = 200_000


def uniforms(num):
    return Draws(0, 0, torch.zeros(1, dtype=torch.int64)).uniform("test", num)[0]


def drawn_from(logits, **options):
    weights = sampling_weights(logits[None], options.get("temperature", 1.0), options.get("disallowed"))
    return sample(weights.expand(MANY, -1), uniforms(MANY))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_follow_the_softmax(temperature):
    logits = torch.randn(128, generator=torch.Generator().manual_seed(0)) * 2
    counts = torch.bincount(drawn_from(logits, temperature=temperature), minlength=128)
    expected = torch.softmax(logits.double() / temperature, 0) * MANY
    common = expected > 5
    observed = torch.cat([counts[common], counts[~common].sum()[None]]).double()
    expected = torch.cat([expected[common], expected[~common].sum()[None]])
    if expected[-1] < 5:  # too few for the test
        observed, expected = observed[:-1], expected[:-1] * (observed[:-1].sum() / expected[:-1].sum())
    assert stats.chisquare(observed.numpy(), expected.numpy()).pvalue > 1e-4


def test_uniform_bf16_logits_give_the_middle_id():
    """Argmax over bf16 Gumbel noise, for one, gives a mean of 250 here."""
    weights = sampling_weights(torch.zeros(2000, 30528, dtype=torch.bfloat16), 1.0, None)
    assert weights.dtype == torch.float32
    assert sample(weights, uniforms(2000)).double().mean().item() == pytest.approx(30528 / 2, rel=0.04)


def test_disallowed_id_is_never_drawn():
    logits = torch.zeros(64)
    logits[7] = 40.0  # all but certain
    drawn = drawn_from(logits, disallowed=torch.tensor([7]))
    assert (drawn != 7).all()
    assert len(set(drawn.tolist())) == 63


@given(st.lists(st.sampled_from([0.0, 1e-38, 1e-7, 0.3, 1.0]), min_size=128, max_size=128), st.floats(0, 1, width=32))
def test_an_id_of_weight_zero_is_never_drawn(values, uniform):
    weights = torch.tensor([values])
    weights[0, 77] += 1e-3
    assert weights[0, sample(weights, torch.tensor([uniform]))] > 0


def test_the_last_uniform_stays_inside_the_vocabulary():
    logits = torch.randn(50, 30528, generator=torch.Generator().manual_seed(0))
    logits[:, 30522:] = -1e30
    weights = sampling_weights(logits, 1.0, None)
    assert (sample(weights, torch.full((50,), 1 - 2**-24)) < 30522).all()
    assert (sample(weights, torch.full((50,), 2**-24)) >= 0).all()
