"""Muon: momentum whose every matrix is made orthogonal before it is applied (Jordan et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor

from electra_core.optimizer.adam import AdamW

UPDATE_RMS = 0.2
"""Root mean square of an update's elements, about AdamW's in practice (Moonlight, arXiv:2502.16982, section 2.2)."""
_A, _B, _C = 3.4445, -4.7750, 2.0315
"""The quintic a·x + b·x³ + c·x⁵ takes every singular value in (0, 1] towards [0.7, 1.2], small ones fastest. Its
coefficients are chosen for a steep start rather than for an exact end."""


@torch.no_grad()
def orthogonalised(matrices: Tensor, num_steps: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Each matrix U·S·Vᵀ taken to about U·Vᵀ by Newton–Schulz iteration.

    Args:
        matrices: float[N, R, C], any scale; a matrix of zeros stays so.
        num_steps: iterations; 5 bring all but the smallest singular values into [0.7, 1.2].
        dtype: of the products. The iteration forgives the rounding of bf16: take it where its products are many times
            as fast, on GPUs and on processors with matrix units. Elsewhere it costs more than it saves.

    Returns:
        [N, R, C] in the dtype of `matrices`.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon.
    """
    x = matrices.to(dtype)
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT  # the products are as large as the shorter side
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    # By multiplications: 2C/R + 1 for each iteration, against 2C/R at all and 3.4 for each of five.
    is_long = x.shape[-1] > 1.5 * x.shape[-2]
    x = _iterate_gram(x, num_steps) if is_long and x.dtype != torch.bfloat16 else _iterate(x, num_steps)
    return (x.mT if is_tall else x).to(matrices.dtype)


def _iterate(x: Tensor, num_steps: int) -> Tensor:
    """`num_steps` times x ← p(x·xᵀ) · x, where x · p(x²) is the quintic."""
    for _ in range(num_steps):
        gram = torch.bmm(x, x.mT)
        polynomial = torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C)
        x = torch.baddbmm(x, polynomial, x, beta=_A)
    return x


def _iterate_gram(x: Tensor, num_steps: int) -> Tensor:
    """What `_iterate` gives, by products of the shorter side alone but for the first and the last.

    The polynomials p₁, p₂, … commute with g = x·xᵀ and each other, so x after k of them is (pₖ … p₁) · x and g is
    (pₖ … p₁)² · g. In float32 the two ways agree to 1e-5; bf16 would lose the small singular values, squared in g.
    """
    gram, product = torch.bmm(x, x.mT), None
    for step in range(num_steps):
        polynomial = torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C)
        polynomial.diagonal(dim1=-2, dim2=-1).add_(_A)
        product = polynomial if product is None else torch.bmm(polynomial, product)
        if step + 1 < num_steps:
            gram = torch.bmm(torch.bmm(polynomial, gram), polynomial)
    return x if product is None else torch.bmm(product, x)


class Peers(Protocol):
    """The data-parallel workers that hold the same weights and gradients, seen from one of them."""

    @property
    def rank(self) -> int:
        """Which of them this is, from 0."""
        ...

    @property
    def world_size(self) -> int:
        """How many they are."""
        ...

    def gather_equal(self, values: Tensor) -> Tensor:
        """Tensors of one shape laid end to end along the first dimension, in rank order."""
        ...


class Muon(AdamW):
    """m ← μm + (1 − μ)g; p ← p − lr · (0.2 √max(R, C) · orthogonalised((1 − μ)g + μm) + weight_decay · p).

    An orthogonal R × C matrix has elements of RMS 1 / √max(R, C), so every update has RMS 0.2 as AdamW's about have,
    and one learning rate and weight decay serve both. The rule is for groups with `num_blocks` ≥ 1, whose matrices are
    cut into so many blocks of rows, each orthogonalised by itself; groups with `num_blocks` 0 get AdamW.

    Sources: Jordan et al. 2024 (momentum and Nesterov's step), Moonlight, arXiv:2502.16982 (scale and weight decay).
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        num_newton_schulz_steps: int = 5,
        peers: Peers | None = None,
        products_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Take the groups of `parameter_groups`.

        Args:
            params: groups; those without `num_blocks` get AdamW.
            lr: learning rate; the training loop sets it in the groups before each step.
            betas: of AdamW.
            eps: of AdamW.
            weight_decay: for groups that do not set their own.
            momentum: μ.
            num_newton_schulz_steps: iterations of `orthogonalised`.
            peers: workers to share its work with; each does all of it where there are none.
            products_dtype: what `orthogonalised` multiplies in.
        """
        super().__init__(params, lr, betas, eps, weight_decay)
        self._momentum = momentum
        self._products_dtype = products_dtype
        self._num_steps = num_newton_schulz_steps
        self._peers = peers

    def _update_all(self) -> None:
        for group in self.param_groups:
            if not group.get("num_blocks"):
                self._update(group)
        self._update_matrices([group for group in self.param_groups if group.get("num_blocks")])

    def _update_matrices(self, groups: list[dict[str, Any]]) -> None:
        pairs = [(p, group) for group in groups for p in group["params"] if p.grad is not None]
        if not pairs:
            return
        parameters = [p for p, _ in pairs]
        gradients = [p.grad for p in parameters]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        momenta = [self.state[p]["momentum"] for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - self._momentum)
        updates = torch._foreach_lerp(gradients, momenta, self._momentum)
        blocks = [
            update.unflatten(0, (group["num_blocks"], -1)) for update, (_, group) in zip(updates, pairs, strict=True)
        ]
        for (parameter, group), block in zip(pairs, self._orthogonalise_all(blocks), strict=True):
            scale = UPDATE_RMS * math.sqrt(max(block.shape[-2:]))
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(block.flatten(0, 1), alpha=-group["lr"] * scale)

    def _orthogonalise_all(self, blocks: list[Tensor]) -> list[Tensor]:
        """`orthogonalised` for float[n, R, C] tensors of many shapes: those of one R × C go in one batch.

        A dozen layers would otherwise start hundreds of small products, and a GPU would wait for the host.
        """
        by_shape: dict[torch.Size, list[int]] = {}
        for index, block in enumerate(blocks):
            by_shape.setdefault(block.shape[1:], []).append(index)
        batches = [torch.cat([blocks[index] for index in indices]) for indices in by_shape.values()]
        results: list[Tensor] = [*blocks]
        for indices, together in zip(by_shape.values(), self._share_out(batches), strict=True):
            for index, part in zip(indices, together.split([len(blocks[index]) for index in indices]), strict=True):
                results[index] = part
        return results

    def _share_out(self, batches: list[Tensor]) -> list[Tensor]:
        """`orthogonalised` for every float[N, R, C], each worker doing an equal part of each.

        It costs the same however few rows a worker has, so done in full by everyone it would eat up what more workers
        gain. The parts are exchanged in one message: each has its price, however short.
        """
        if self._peers is None or self._peers.world_size == 1:
            return [orthogonalised(batch, self._num_steps, self._products_dtype) for batch in batches]
        size, rank = self._peers.world_size, self._peers.rank
        counts = [-(-len(batch) // size) for batch in batches]
        parts = []
        for batch, count in zip(batches, counts, strict=True):
            part = batch[rank * count :][:count]
            done = batch.new_zeros(count, *batch.shape[1:])  # the last workers' parts may be shorter, or empty
            done[: len(part)] = orthogonalised(part, self._num_steps, self._products_dtype)
            parts.append(done)
        gathered = self._peers.gather_equal(torch.cat([part.flatten() for part in parts])).view(size, -1)
        columns = gathered.split([part.numel() for part in parts], dim=1)
        return [
            column.reshape(-1, *batch.shape[1:])[: len(batch)] for column, batch in zip(columns, batches, strict=True)
        ]
