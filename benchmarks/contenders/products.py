"""The matrix products of one step and nothing else: no step with these networks in this precision can be faster,
unless it multiplies faster than torch does.

T = B · L tokens, M = B · N masked positions, H hidden_size, F intermediate_size, E embedding_size, A heads of width D,
V padded_vocab_size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from contenders.agreement import DTYPES, Contender
from contenders.sizes import SEED, Size
from electra_core.accounting import max_masked_positions
from electra_core.config import EncoderConfig


class Product(NamedTuple):
    """x · wᵀ with x [batch, rows, inner] and w [batch, columns, inner], and the two products of its gradients."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Forward and backward, 2 per multiply-add."""
        return 3 * 2 * self.batch * self.rows * self.inner * self.columns


def products_of(size: Size) -> Iterator[Product]:
    """Every product of the forward pass, in order."""
    masked = size.rows * max_masked_positions(size.masking, size.length)
    generator, discriminator = size.model.generator(size.vocab_size), size.model.discriminator(size.vocab_size)
    yield from _encoder(generator, size)
    yield Product(1, masked, generator.hidden_size, generator.embedding_size)
    yield Product(1, masked, generator.embedding_size, generator.padded_vocab_size)
    yield from _encoder(discriminator, size)
    yield Product(1, size.tokens, discriminator.hidden_size, discriminator.hidden_size)
    yield Product(1, size.tokens, discriminator.hidden_size, 1)


def _encoder(encoder: EncoderConfig, size: Size) -> Iterator[Product]:
    tokens, hidden, inner = size.tokens, encoder.hidden_size, encoder.intermediate_size
    heads = size.rows * encoder.num_attention_heads
    width = hidden // encoder.num_attention_heads
    if encoder.embedding_size != hidden:
        yield Product(1, tokens, encoder.embedding_size, hidden)
    for _ in range(encoder.num_hidden_layers):
        yield Product(1, tokens, hidden, 3 * hidden)
        yield Product(heads, size.length, width, size.length)
        yield Product(heads, size.length, size.length, width)
        yield Product(1, tokens, hidden, hidden)
        yield Product(1, tokens, hidden, inner)
        yield Product(1, tokens, inner, hidden)


class Products(Contender):
    """All of them back to back: forward in order, then backward in reverse."""

    def __init__(self, size: Size, precision: str, device: torch.device) -> None:
        self.device = device
        products = list(products_of(size))
        counted = sum(product.flops for product in products)
        if abs(counted - size.flops) > 1e-6 * size.flops:
            raise ValueError(f"the products must be those electra_core.accounting counts, got {counted} {size.flops}")
        rng = torch.Generator(device).manual_seed(SEED)

        def drawn(*shape: int) -> torch.Tensor:
            flat = shape[1:] if shape[0] == 1 else shape
            return torch.randn(flat, generator=rng, device=device).to(DTYPES[precision])

        self._operands = [
            (drawn(p.batch, p.rows, p.inner), drawn(p.batch, p.columns, p.inner), drawn(p.batch, p.rows, p.columns))
            for p in products
        ]

    def step(self) -> None:
        for x, w, _ in self._operands:
            torch.matmul(x, w.transpose(-1, -2))
        for x, w, gradient in reversed(self._operands):
            torch.matmul(gradient, w)
            torch.matmul(gradient.transpose(-1, -2), x)
