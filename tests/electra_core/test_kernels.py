"""The fast ways against the plain ones."""

import pytest
import torch

from electra_core import kernels
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


@pytest.fixture
def onednn_products():
    """Products through oneDNN, where this processor has them in full precision; MKL again afterwards."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    if not kernels.use_onednn_for_float32_products():
        assert torch.backends.mkldnn.matmul.fp32_precision == before
        pytest.skip("oneDNN would round float32 products to bf16 on this processor")
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before
    kernels._products_use_onednn = False


def test_products_through_onednn_are_float32(onednn_products):
    rng = torch.Generator().manual_seed(1)
    a, b = torch.randn(300, 70, generator=rng), torch.randn(70, 130, generator=rng)
    torch.testing.assert_close((a @ b).double(), a.double() @ b.double(), atol=1e-4, rtol=1e-5)


def test_attention_is_the_same_through_onednn(onednn_products):
    rng = torch.Generator().manual_seed(2)
    query, key, value = torch.randn(3, 2, 4, 16, 8, generator=rng)
    expected = kernels.attention_reference(query.double(), key.double(), value.double(), None).float()
    torch.testing.assert_close(kernels.attention(query, key, value, None), expected, atol=1e-5, rtol=1e-5)
