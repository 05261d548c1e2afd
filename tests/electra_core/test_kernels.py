"""The fast ways against the plain ones."""

import pytest
import torch

from electra_core.kernels import attention, attention_reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padded", [False, True])
def test_attention_is_the_reference(dtype, padded):
    rng = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 10, 8, generator=rng).to(dtype).requires_grad_() for _ in range(3))
    bias = torch.where(torch.arange(10) < 7, 0.0, -1e9).expand(2, 1, 1, 10) if padded else None
    results = []
    for compute in (attention, attention_reference):
        context = compute(query, key, value, bias)
        results.append((context, *torch.autograd.grad(context.float().square().sum(), (query, key, value))))
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain)
