"""Adam as G has it, without bias correction, and as everyone else has it, with; both with decoupled weight decay."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from electra_core.kernels import adam_update_


class ElectraAdam(Optimizer):
    """m ← β₁m + (1 − β₁)g; v ← β₂v + (1 − β₂)g²; p ← p − lr · (m / (√v + ε) + weight_decay · p).

    Without bias correction the first updates are about (1 − β₁) / √(1 − β₂) = 3.2 times those of the usual Adam; the
    warm-up absorbs that. Source: G's `model/optimization.py`, `AdamWeightDecayOptimizer`.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        """Take parameters or groups.

        Args:
            params: parameters, or the groups of `parameter_groups`.
            lr: learning rate; the training loop sets it in the groups before each step.
            betas: decay of the two moments per step.
            eps: added to √v.
            weight_decay: for groups that do not set their own.
        """
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._update_all()
        return loss

    def _update_all(self) -> None:
        for group in self.param_groups:
            self._update(group)

    def _update(self, group: dict[str, Any]) -> None:
        """Update the parameters of one group that have a gradient."""
        parameters = [p for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        adam_update_(
            parameters,
            [p.grad for p in parameters],
            [self.state[p]["exp_avg"] for p in parameters],
            [self.state[p]["exp_avg_sq"] for p in parameters],
            learning_rate=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            epsilon=group["eps"],
            weight_decay=group["weight_decay"],
        )


class AdamW(ElectraAdam):
    """p ← p − lr · (m̂ / (√v̂ + ε) + weight_decay · p) with m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ), m and v as above.

    t counts the updates of a parameter, from 1. Source: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.
    """

    def _update(self, group: dict[str, Any]) -> None:
        """Update the parameters of one group that have a gradient."""
        beta1, beta2 = group["betas"]
        by_count: dict[int, list[Any]] = {}
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["num_updates"] = 0  # an int of the host: a tensor would be read from the device at each step
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["num_updates"] += 1
            by_count.setdefault(state["num_updates"], []).append(parameter)
        for count, parameters in by_count.items():
            # m̂ / (√v̂ + ε) = ratio · m / (√v + ε · root), so the correction is one of three scalars, and the update
            # is that of Adam without it.
            root = math.sqrt(1 - beta2**count)
            ratio = root / (1 - beta1**count)
            adam_update_(
                parameters,
                [p.grad for p in parameters],
                [self.state[p]["exp_avg"] for p in parameters],
                [self.state[p]["exp_avg_sq"] for p in parameters],
                learning_rate=group["lr"] * ratio,
                beta1=beta1,
                beta2=beta2,
                epsilon=group["eps"] * root,
                weight_decay=group["weight_decay"] / ratio,
            )
