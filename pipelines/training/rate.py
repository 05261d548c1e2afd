"""How fast this device multiplies matrices: the ceiling that model FLOPs utilisation (MFU) is a share of."""

from __future__ import annotations

import time

import torch

MATRIX_SIZE = {"cpu": 1024, "cuda": 8192}
"""Large enough that the product, not its start, is what takes the time."""


def matrix_product_flops_per_second(device: torch.device, dtype: torch.dtype, seconds: float = 0.2) -> float:
    """Best rate of square matrix products over about `seconds`, in FLOP/s (2 per multiply-add).

    The best of several, not the mean: the ceiling is what the device can do when nothing disturbs it.
    """
    size = MATRIX_SIZE[device.type]
    rng = torch.Generator(device).manual_seed(0)  # equal numbers would draw less power, and so run faster
    a, b = (torch.randn(size, size, device=device, generator=rng).to(dtype) for _ in range(2))
    best = float("inf")
    deadline = time.perf_counter() + seconds
    torch.mm(a, b)  # loads the kernel
    while best == float("inf") or time.perf_counter() < deadline:
        _wait_for(device)
        start = time.perf_counter()
        torch.mm(a, b)
        _wait_for(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
