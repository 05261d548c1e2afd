"""Muon: orthogonal updates, blocks, and who gets them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tiny import networks

from electra_core.config import OptimizerConfig
from electra_core.optimizer import Muon, make_optimizer, parameter_groups
from electra_core.optimizer.groups import num_orthogonalised_blocks
from electra_core.optimizer.muon import _iterate, _iterate_gram, orthogonalised


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 40), (2, 40, 8)])
def test_five_iterations_bring_singular_values_near_one(shape, dtype):
    result = orthogonalised(random(*shape), 5, dtype)
    assert result.dtype == torch.float32
    values = torch.linalg.svdvals(result)
    # A square Gaussian matrix may have a singular value near 0, which five iterations cannot lift.
    assert values.max() < 1.25
    assert values.median() > 0.65
    if shape[1] != shape[2]:
        assert values.min() > 0.65


def test_singular_vectors_and_scale_free():
    """U·S·Vᵀ goes to U·f(S)·Vᵀ, f(S) > 0, whatever the scale of S."""
    matrix = random(1, 12, 12)
    left, _, right = torch.linalg.svd(matrix)
    middle = left.mT @ orthogonalised(matrix * 1e3, 5) @ right.mT
    off_diagonal = middle - torch.diag_embed(middle.diagonal(dim1=-2, dim2=-1))
    assert off_diagonal.abs().max() < 1e-4
    assert middle.diagonal(dim1=-2, dim2=-1).min() > 0
    torch.testing.assert_close(orthogonalised(matrix * 1e3, 5), orthogonalised(matrix, 5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_steps", [0, 1, 5])
@pytest.mark.parametrize("rank", [4, 12])
def test_iterating_on_the_short_side_gives_the_same(num_steps, rank):
    matrix = random(2, 12, rank) @ random(2, rank, 40, seed=1) / 100
    torch.testing.assert_close(_iterate_gram(matrix, num_steps), _iterate(matrix, num_steps), rtol=1e-4, atol=2e-5)


def test_bf16_comes_to_the_same_but_for_its_rounding():
    matrices = random(4, 24, 24)
    exact, rounded = orthogonalised(matrices, 5), orthogonalised(matrices, 5, torch.bfloat16)
    assert not torch.equal(exact, rounded)
    assert torch.nn.functional.cosine_similarity(exact.flatten(), rounded.flatten(), dim=0) > 0.995


def test_a_matrix_of_zeros_stays():
    assert torch.equal(orthogonalised(torch.zeros(1, 4, 6), 5), torch.zeros(1, 4, 6))


def test_a_fused_matrix_is_three():
    """One step on (3H, H) is one step on each of its three thirds; orthogonalised whole it would be another."""
    rng = torch.Generator().manual_seed(0)
    start, gradient = (torch.randn(24, 8, generator=rng) for _ in range(2))
    thirds = [torch.nn.Parameter(part.clone()) for part in start.split(8)]
    for part, grad in zip(thirds, gradient.split(8), strict=True):
        part.grad = grad
    fused, whole = (torch.nn.Parameter(start.clone()) for _ in range(2))
    fused.grad, whole.grad = gradient, gradient
    for parameters, blocks in ((thirds, 1), ([fused], 3), ([whole], 1)):
        Muon([{"params": parameters, "num_blocks": blocks}], lr=0.1).step()
    torch.testing.assert_close(fused, torch.cat(thirds))
    assert not torch.allclose(fused, whole, atol=1e-3)


@pytest.mark.parametrize("shape", [(32, 32), (16, 64), (64, 16)])
def test_an_update_is_as_large_as_adams(shape):
    parameter = torch.nn.Parameter(torch.zeros(shape))
    parameter.grad = random(*shape) * 1e-4
    Muon([{"params": [parameter], "num_blocks": 1}], lr=1.0).step()
    assert parameter.square().mean().sqrt().item() == pytest.approx(0.2, rel=0.2)


@pytest.mark.parametrize(
    ("name", "dimensions", "blocks"),
    [
        ("discriminator.layers.0.query_key_value.weight", 2, 3),
        ("generator.layers.11.attention_output.weight", 2, 1),
        ("generator.layers.11.intermediate.weight", 2, 1),
        ("generator.embeddings_projection.weight", 2, 1),
        ("generator_head.dense.weight", 2, 1),
        ("discriminator_head.prediction.weight", 2, 0),
        ("discriminator.layers.0.query_key_value.bias", 1, 0),
        ("discriminator.layers.0.output_layer_norm.weight", 1, 0),
        ("generator_head.bias", 1, 0),
        ("embeddings.word", 2, 0),
        ("embeddings.position", 2, 0),
        ("some_other.weight", 2, 0),
    ],
)
def test_who_is_orthogonalised(name, dimensions, blocks):
    assert num_orthogonalised_blocks(name, dimensions) == blocks


@pytest.mark.parametrize("name", ["electra_adam", "muon"])
def test_groups_hold_every_parameter_once_and_decay_all_but_vectors(name):
    net = networks()
    groups = parameter_groups(net, OptimizerConfig(name=name))
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in net.parameters())
    names = {id(parameter): key for key, parameter in net.named_parameters()}
    for group in groups:
        for parameter in group["params"]:
            is_plain = "layer_norm" in names[id(parameter)] or names[id(parameter)].endswith("bias")
            assert group["weight_decay"] == (0.0 if is_plain else 0.01)


def test_muons_own_rate_is_for_its_matrices_alone():
    groups = parameter_groups(networks(), OptimizerConfig(name="muon", learning_rate=1e-3, muon_learning_rate=4e-3))
    assert {(group["num_blocks"] > 0, group["learning_rate_scale"]) for group in groups} == {(True, 4.0), (False, 1.0)}


def test_batches_of_many_shapes_come_back_to_their_own():
    """All matrices of the networks at once against each by itself."""
    together, alone = networks(), networks()
    for index, (left, right) in enumerate(zip(together.parameters(), alone.parameters(), strict=True)):
        left.grad = random(*left.shape, seed=index)
        right.grad = left.grad.clone()
    config = OptimizerConfig(name="muon", learning_rate=0.1)
    make_optimizer(together, config).step()
    for group in parameter_groups(alone, config):
        for parameter in group["params"]:
            Muon([{**group, "params": [parameter]}], lr=0.1).step()
    for left, right in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


class Peer:
    """One of several workers, each in a thread of its own."""

    def __init__(self, rank: int, parts: list[torch.Tensor | None], barrier: threading.Barrier) -> None:
        self.rank, self.world_size, self._parts, self._barrier = rank, len(parts), parts, barrier

    def gather_equal(self, values: torch.Tensor) -> torch.Tensor:
        self._parts[self.rank] = values
        self._barrier.wait()
        gathered = torch.cat(self._parts)
        self._barrier.wait()
        return gathered


def test_workers_share_the_work_and_come_to_the_same_update():
    """Three workers, and batches of matrices that three does not divide."""
    config = OptimizerConfig(name="muon", learning_rate=0.1)
    nets = [networks() for _ in range(4)]
    for net in nets:
        for index, parameter in enumerate(net.parameters()):
            parameter.grad = random(*parameter.shape, seed=index)
    parts, barrier = [None] * 3, threading.Barrier(3, timeout=60)
    optimizers = [make_optimizer(net, config, Peer(rank, parts, barrier)) for rank, net in enumerate(nets[:3])]
    with ThreadPoolExecutor(3) as threads:
        for result in [threads.submit(optimizer.step) for optimizer in optimizers]:
            result.result()
    make_optimizer(nets[3], config).step()
    for first, second, third, alone in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(first, second)
        assert torch.equal(first, third)
        torch.testing.assert_close(first, alone, rtol=1e-4, atol=1e-5)
