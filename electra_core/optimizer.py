"""Adam as G has it: no bias correction, decoupled weight decay, one clip over both networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from electra_core.kernels import adam_update_


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for `ElectraAdam`: what is decayed, and LayerNorms and biases, which are not.

    Every parameter that takes gradient is in exactly one of them; embeddings are decayed, as in G.
    """
    undecayed_ids = {
        id(parameter)
        for submodule in module.modules()
        for name, parameter in submodule.named_parameters(recurse=False)
        if isinstance(submodule, nn.LayerNorm) or name == "bias"
    }
    # A list: an iterator would be spent after the first group, which has left biases untrained in reimplementations.
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trainable if id(p) not in undecayed_ids], "weight_decay": weight_decay},
        {"params": [p for p in trainable if id(p) in undecayed_ids], "weight_decay": 0.0},
    ]


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
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
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
        return loss


@torch.no_grad()
def clip_by_global_norm(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients down together so that their joint norm is at most `max_norm`.

    Returns:
        0-dim float32 tensor on the gradients' device: the norm before clipping. It is not read here, so nothing
        waits for the device; a norm that is not finite makes every gradient so.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    # As TensorFlow's clip_by_global_norm; torch's clip_grad_norm_ adds 1e-6 to the norm.
    torch._foreach_mul_(gradients, max_norm / norm.clamp(min=max_norm))
    return norm
