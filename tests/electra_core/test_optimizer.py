"""Adam, clipping and the schedule against what G computes, written out in NumPy."""

import numpy as np
import pytest
import torch

from electra_core.config import OptimizerConfig
from electra_core.kernels import adam_update_, adam_update_reference_
from electra_core.optimizer import AdamW, ElectraAdam, clip_by_global_norm, make_optimizer, set_learning_rate
from electra_core.schedule import learning_rate

CONFIG = OptimizerConfig(learning_rate=1e-2, warmup_steps=5)


class Reference:
    """The three rules in float64 NumPy, for a few matrices and vectors by name."""

    def __init__(self, values, config):
        self.values, self.config, self.count = dict(values), config, 0
        self.m = {name: np.zeros_like(value) for name, value in values.items()}
        self.v = {name: np.zeros_like(value) for name, value in values.items()}

    def step(self, gradients, rate):
        self.count += 1
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        for name, gradient in gradients.items():
            clipped = gradient * min(1.0, self.config.max_grad_norm / norm)
            rule = self.muon if self.config.name == "muon" and name.endswith("dense.weight") else self.adam
            decay = 0.0 if name.endswith("bias") else self.config.weight_decay
            self.values[name] = self.values[name] - rate * (rule(name, clipped) + decay * self.values[name])

    def adam(self, name, g):
        beta1, beta2 = self.config.beta1, self.config.beta2
        m = self.m[name] = beta1 * self.m[name] + (1 - beta1) * g
        v = self.v[name] = beta2 * self.v[name] + (1 - beta2) * g**2
        if self.config.name != "electra_adam":
            m, v = m / (1 - beta1**self.count), v / (1 - beta2**self.count)
        return m / (np.sqrt(v) + self.config.epsilon)

    def muon(self, name, g):
        mu = self.config.muon_momentum
        m = self.m[name] = mu * self.m[name] + (1 - mu) * g
        x = (1 - mu) * g + mu * m
        x = x / np.linalg.norm(x)
        for _ in range(self.config.muon_ns_steps):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return 0.2 * np.sqrt(max(x.shape)) * x


class Sample(torch.nn.Module):
    """An embedding, a wide and a tall matrix, a bias: one parameter for each rule."""

    def __init__(self, values):
        super().__init__()
        self.word = torch.nn.Parameter(torch.tensor(values["word"], dtype=torch.float32))
        for name in ("a", "b"):
            self.add_module(name, torch.nn.Module())
            part = getattr(self, name)
            part.dense = torch.nn.Linear(1, 1)
            part.dense.weight = torch.nn.Parameter(torch.tensor(values[f"{name}.dense.weight"], dtype=torch.float32))
            part.dense.bias = torch.nn.Parameter(torch.tensor(values[f"{name}.dense.bias"], dtype=torch.float32))


SHAPES = {
    "word": (9, 6),
    "a.dense.weight": (5, 8),
    "a.dense.bias": (5,),
    "b.dense.weight": (8, 5),
    "b.dense.bias": (8,),
}


@pytest.mark.parametrize("name", ["electra_adam", "adamw", "muon"])
def test_against_numpy_over_twenty_steps(name):
    """float32 against float64; they part by about 1e-6 of a weight."""
    config = OptimizerConfig(name=name, learning_rate=1e-2, warmup_steps=5)
    rng = np.random.default_rng(0)
    values = {key: rng.normal(size=shape) for key, shape in SHAPES.items()}
    sample, reference = Sample(values), Reference(values, config)
    optimizer = make_optimizer(sample, config)
    for step in range(20):
        gradients = {key: rng.normal(size=shape) * 2 for key, shape in SHAPES.items()}
        for key, parameter in sample.named_parameters():
            parameter.grad = torch.tensor(gradients[key], dtype=torch.float32)
        rate = learning_rate(step, config, 20)
        set_learning_rate(optimizer, rate)
        clip_by_global_norm(sample.parameters(), config.max_grad_norm)
        optimizer.step()
        reference.step(gradients, rate)
    for key, parameter in sample.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy(), reference.values[key], rtol=2e-5, atol=2e-6)
        assert np.abs(reference.values[key] - values[key]).max() > 1e-2


def test_adamw_is_torchs():
    ours, theirs = (torch.nn.Parameter(torch.ones(4, 3)) for _ in "ab")
    optimizers = [AdamW([ours], lr=0.1, weight_decay=0.1), torch.optim.AdamW([theirs], 0.1, eps=1e-6, weight_decay=0.1)]
    rng = torch.Generator().manual_seed(0)
    for _ in range(5):
        ours.grad = torch.randn(4, 3, generator=rng)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_fused_update_is_the_reference(weight_decay):
    rng = torch.Generator().manual_seed(0)
    fused, plain = (
        [[torch.ones(9, 4), torch.ones(3)]] + [[torch.zeros(9, 4), torch.zeros(3)] for _ in "mv"] for _ in "ab"
    )
    options = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "weight_decay": weight_decay}
    for _ in range(5):
        gradients = [torch.randn(t.shape, generator=rng) for t in fused[0]]
        for update, state in ((adam_update_, fused), (adam_update_reference_, plain)):
            update(state[0], [g.clone() for g in gradients], state[1], state[2], **options)
    for fast, reference in zip(fused, plain, strict=True):
        torch.testing.assert_close(fast, reference)


def test_clipping_leaves_small_gradients_alone_and_tells_the_norm():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([0.3, 0.4])
    assert clip_by_global_norm([parameter], 1.0).item() == pytest.approx(0.5)
    assert parameter.grad.tolist() == pytest.approx([0.3, 0.4])
    assert clip_by_global_norm([parameter], 0.25).item() == pytest.approx(0.5)
    assert parameter.grad.tolist() == pytest.approx([0.15, 0.2])


def test_clipping_lets_a_norm_that_is_not_finite_be_seen():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([float("nan"), 0.4])
    assert not torch.isfinite(clip_by_global_norm([parameter], 1.0))


def test_state_survives_saving():
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = ElectraAdam([parameter], lr=0.1)
    parameter.grad = torch.ones(3)
    optimizer.step()
    other = ElectraAdam([parameter], lr=0.5)
    other.load_state_dict(optimizer.state_dict())
    assert torch.equal(other.state[parameter]["exp_avg_sq"], optimizer.state[parameter]["exp_avg_sq"])


def test_schedule_multiplies_warm_up_and_decay():
    rates = [learning_rate(step, CONFIG, 20) for step in (0, 1, 5, 10, 20, 25)]
    assert rates == pytest.approx([0.0, 0.01 * 0.2 * 0.95, 0.01 * 0.75, 0.01 * 0.5, 0.0, 0.0])
    assert learning_rate(0, OptimizerConfig(warmup_steps=0, learning_rate=0.5), 20) == 0.5
