"""One clip over the gradients of both networks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


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
