"""The compiled kernels against torch's own, values and gradients."""

import statistics
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from objective_table import STAGES, batch_for, build
from tiny import draws, masked_batch, networks, shake

from electra_core import kernels
from electra_core.config import ObjectiveConfig
from electra_core.native.functions import CrossEntropyFunction, LinearGeluFunction
from electra_core.native.library import NativeLibrary
from electra_core.objectives.corruption import corrupt
from pipelines.training.native_build import build_native_library


@pytest.fixture(scope="module")
def library() -> NativeLibrary:
    built = build_native_library()
    if built is None:
        pytest.skip("no C++ compiler here")
    return built


@pytest.fixture
def both_ways(library):
    """Compute a thing with torch's kernels and then with the compiled ones."""

    def compute(function):
        results = []
        for choice in (None, library):
            kernels.use_native_kernels(choice)
            results.append(function())
        return results

    yield compute
    kernels.use_native_kernels(None)


def sums_and_gradients(dtype=torch.float32, padded=False, length=24, objective=None, seed=0, **changes):
    net = networks(objective=objective, **changes)
    shake(net)
    batch = masked_batch(rows=6, length=length, mask_fraction=0.3, padded=padded)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
        sums = net(batch, draws(batch, seed=seed))
    sums.total(batch.num_masked, batch.num_real).backward()
    return sums.detached(), {name: parameter.grad for name, parameter in net.named_parameters()}


def assert_the_same(plain_and_native):
    (plain, plain_gradients), (native, native_gradients) = plain_and_native
    for name, value in plain.items():
        torch.testing.assert_close(native[name], value, rtol=1e-6, atol=1e-6, msg=name)
    for name, gradient in plain_gradients.items():
        if gradient is None:
            assert native_gradients[name] is None, name
        else:
            scale = gradient.abs().max()
            torch.testing.assert_close(native_gradients[name] / scale, gradient / scale, rtol=0, atol=5e-6, msg=name)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("length", [24, 17])
@pytest.mark.parametrize("heads", [1, 2])
def test_a_step_is_the_same(both_ways, padded, dropout, length, heads):
    def step():
        return sums_and_gradients(
            padded=padded,
            length=length,
            num_attention_heads=heads,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )

    assert_the_same(both_ways(step))


@pytest.mark.parametrize("length", [24, 16])
def test_a_row_of_nothing_but_padding_is_the_same(both_ways, length, monkeypatch):
    """Its queries see every key alike, and whatever asks for its outputs gets their gradient.

    Against attention written out: torch's fused kernel keeps the logarithm of the normaliser, and loses it in rounding.
    """
    monkeypatch.setattr("electra_core.encoder.attention", kernels.attention_reference)
    is_real = torch.ones(3, length, dtype=torch.bool)
    is_real[1] = False
    is_real[2, 5:] = False
    x = torch.randn(3, length, 32, generator=torch.Generator().manual_seed(0))

    def encoded():
        net = networks(embedding_size=32)
        shake(net)
        inputs = x.clone().requires_grad_()
        outputs = net.discriminator(inputs, is_real, None)
        (outputs * torch.linspace(-1, 1, outputs.numel()).view_as(outputs)).sum().backward()
        gradients = {name: parameter.grad for name, parameter in net.discriminator.named_parameters()}
        return {"outputs": outputs.detach()}, gradients | {"inputs": inputs.grad}

    (plain, plain_gradients), (native, native_gradients) = both_ways(encoded)
    torch.testing.assert_close(native["outputs"], plain["outputs"], rtol=0, atol=1e-5)
    for name, gradient in plain_gradients.items():
        scale = gradient.abs().max()
        torch.testing.assert_close(native_gradients[name] / scale, gradient / scale, rtol=0, atol=2e-5, msg=name)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_a_step_of_every_objective_is_the_same(both_ways, name, stage):
    """Padded, so that Electric's towers have a bias for each pair of positions."""

    def step():
        net = build(name, stage, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
        batch = batch_for(name, rows=6, mask_fraction=0.3, padded=True)
        sums = net(batch, draws(batch))
        sums.total(batch.num_masked, batch.num_real).backward()
        return sums.detached(), {name: parameter.grad for name, parameter in net.named_parameters()}

    assert_the_same(both_ways(step))


@pytest.mark.parametrize("objective", [{"name": "mlm"}, {"generator": "uniform"}, {"generator": "unigram"}])
def test_a_step_in_bf16_is_as_near_to_float32_as_torchs_is(both_ways, objective):
    """Of objectives that draw no sample from rounded logits: another sample would be another text to read."""

    def distance(gradients, exact):
        known = [name for name, gradient in exact.items() if gradient is not None]
        return sum(((gradients[name] - exact[name]).norm() / exact[name].norm()).item() for name in known) / len(known)

    def distances():
        return [
            distance(sums_and_gradients(torch.bfloat16, seed=seed, objective=config)[1], exact[seed])
            for seed in range(5)
        ]

    config = ObjectiveConfig(**objective)
    exact = [sums_and_gradients(seed=seed, objective=config)[1] for seed in range(5)]
    plain, native = both_ways(distances)
    assert statistics.mean(native) < 1.1 * statistics.mean(plain)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_rows_are_shared_out_among_any_number_of_threads(both_ways, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        (_, plain), (_, native) = both_ways(lambda: sums_and_gradients(hidden_dropout_prob=0.1))
    finally:
        torch.set_num_threads(before)
    for name, gradient in plain.items():
        torch.testing.assert_close(native[name], gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7}, {"disallow_correct": True}])
def test_samples_are_the_same(both_ways, settings):
    def corrupted():
        net = networks(hidden_dropout_prob=0.0)
        batch = masked_batch(rows=64, mask_fraction=0.5)
        with torch.no_grad():
            return corrupt(net, batch, draws(batch), ObjectiveConfig(**settings))

    plain, native = both_ways(corrupted)
    # Rounding may push a number over the border between two ids, once in many thousands.
    assert (plain.corrupted_ids != native.corrupted_ids).sum() <= 1
    assert plain.generator_correct == native.generator_correct


def test_gelu_is_right_far_out(library):
    x = torch.linspace(-14, 14, 16 * 400).view(400, 16)
    weight, bias = torch.eye(16), torch.zeros(16)
    expected = 0.5 * x.double() * torch.erfc(-x.double() / 2**0.5)  # F.gelu's 1 + erf has no digits left at -9
    got = LinearGeluFunction.apply(library, torch.float32, x, weight, bias)
    assert ((got - expected).abs() <= 2e-5 * expected.abs() + 1e-36).all(), "relative, in the tail too"
    torch.testing.assert_close(got, expected.float(), rtol=0, atol=1e-6)
    x.requires_grad_()
    LinearGeluFunction.apply(library, torch.float32, x, weight, bias).sum().backward()
    exact = x.detach().double().requires_grad_()
    F.gelu(exact).sum().backward()
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=0, atol=1e-6)


def native_samples(library, logits, uniform, temperature=1.0, disallowed=None, dtype=torch.float32):
    """Samples of rows that are given as the bias of empty products."""
    rows, padded = len(uniform), logits.shape[-1]
    x, word = torch.zeros(rows, 16), torch.zeros(padded, 16)
    targets, weights = torch.zeros(rows, dtype=torch.int64), torch.ones(rows)
    return CrossEntropyFunction.apply(
        library, dtype, x, word, logits, padded, targets, weights, uniform, disallowed, temperature, False
    )[2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_uniform_logits_sample_uniformly(library, dtype):
    padded, rows = 30528, 20_000
    uniform = (torch.arange(rows) + 0.5) / rows
    samples = native_samples(library, torch.zeros(padded), uniform[torch.randperm(rows)], dtype=dtype)
    assert abs(samples.double().mean() / (padded / 2) - 1) < 0.01


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_samples_follow_the_softmax(library, temperature):
    rng = torch.Generator().manual_seed(0)
    logits, rows = 2 * torch.randn(128, generator=rng), 200_000
    samples = native_samples(library, logits, torch.rand(rows, generator=rng).clamp_(1e-7, 1 - 1e-7), temperature)
    expected = torch.softmax(logits / temperature, dim=0) * rows
    statistic = ((samples.bincount(minlength=128) - expected) ** 2 / expected).sum()
    assert statistic < 205, "chi-square with 127 degrees of freedom is above 205 once in 100 000"


def test_a_disallowed_id_is_never_sampled_however_likely(library):
    logits = torch.zeros(128)
    logits[7] = 90.0
    samples = native_samples(library, logits, (torch.arange(500) + 0.5) / 500, disallowed=torch.full((500,), 7))
    assert 7 not in samples
    assert len(samples.unique()) > 100


def test_of_several_ids_on_top_the_first_is_the_answer(library):
    x, word, half = torch.zeros(3, 16), torch.zeros(64, 16), torch.full((3,), 0.5)
    targets = torch.tensor([0, 1, 63])
    _, is_correct, _ = CrossEntropyFunction.apply(
        library, torch.float32, x, word, torch.zeros(64), 64, targets, torch.ones(3), half, None, 1.0, False
    )
    assert is_correct.tolist() == [1.0, 0.0, 0.0]


def test_the_random_bytes_are_those_of_the_plain_way(both_ways):
    from electra_core.dropout import dropout

    batch = masked_batch(rows=3, length=24, first_row=5)
    x = torch.ones(3, 24, 48)
    plain, native = both_ways(lambda: dropout(x, 0.3, draws(batch, step=9), "somewhere"))
    assert torch.equal(plain, native)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in Linux's /proc")
def test_threads_are_torchs_own(library):
    """One pool for both: two would fight over the same cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        torch.randn(512, 512) @ torch.randn(512, 512)
        torch.ones(1 << 22).add_(1)
        with_torch = len(list(Path("/proc/self/task").iterdir()))
        x = torch.randn(4096, 64)
        LinearGeluFunction.apply(library, torch.float32, x, torch.randn(64, 64), torch.zeros(64))
        assert len(list(Path("/proc/self/task").iterdir())) == with_torch
    finally:
        torch.set_num_threads(before)
