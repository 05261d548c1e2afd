"""Adam, clipping and the schedule against what G computes, written out in NumPy."""

import numpy as np
import pytest
import torch
from tiny import networks

from electra_core.config import OptimizerConfig
from electra_core.kernels import adam_update_, adam_update_reference_
from electra_core.optimizer import ElectraAdam, clip_by_global_norm, parameter_groups
from electra_core.schedule import learning_rate

CONFIG = OptimizerConfig(learning_rate=1e-2, warmup_steps=5)


def test_against_numpy_over_twenty_steps():
    rng = np.random.default_rng(0)
    decayed, plain = rng.normal(size=(7, 5)), rng.normal(size=5)
    parameters = [torch.nn.Parameter(torch.tensor(p, dtype=torch.float32)) for p in (decayed, plain)]
    optimizer = ElectraAdam(
        [{"params": parameters[:1], "weight_decay": 0.01}, {"params": parameters[1:], "weight_decay": 0.0}], lr=0.0
    )
    state = [(decayed, 0.01, 0.0, 0.0), (plain, 0.0, 0.0, 0.0)]
    for step in range(20):
        gradients = [rng.normal(size=p.shape) * 2 for p in (decayed, plain)]
        rate = learning_rate(step, CONFIG, 20)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.tensor(gradient, dtype=torch.float32)
        for group in optimizer.param_groups:
            group["lr"] = rate
        clip_by_global_norm(parameters, 1.0)
        optimizer.step()

        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        for index, ((value, decay, m, v), gradient) in enumerate(zip(state, gradients, strict=True)):
            clipped = gradient * min(1.0, 1.0 / norm)
            m = 0.9 * m + 0.1 * clipped
            v = 0.999 * v + 0.001 * clipped**2
            update = m / (np.sqrt(v) + 1e-6) + decay * value
            state[index] = (value - rate * update, decay, m, v)
    for parameter, (value, *_) in zip(parameters, state, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=2e-5, atol=1e-6)


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


def test_only_matrices_and_embeddings_are_decayed():
    net = networks()
    decayed, plain = parameter_groups(net, 0.01)
    names = {id(p): name for name, p in net.named_parameters()}
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    assert all("layer_norm" in names[id(p)] or names[id(p)].endswith("bias") for p in plain["params"])
    assert all(p.dim() == 2 for p in decayed["params"])
    assert {"embeddings.word", "embeddings.position"} <= {names[id(p)] for p in decayed["params"]}
    assert len(decayed["params"]) + len(plain["params"]) == len(names)


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
