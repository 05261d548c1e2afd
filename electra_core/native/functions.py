"""The compiled kernels with their gradients, as autograd functions.

B rows, L positions, T = B · L, M masked positions, H hidden_size, A heads, F intermediate_size, E embedding_size,
V padded_vocab_size. "Stored" tensors are float32, or bfloat16 under autocast; weights and their gradients are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from electra_core.native.library import NativeLibrary


class _Function(Function):
    """`apply` with a type: torch's has none."""

    apply: Callable[..., Any]


class NativeDropout(NamedTuple):
    """Dropout at one place of a network."""

    kept: int = 256
    """Of 256 byte values, how many keep an element; 256 is no dropout."""
    keys: Tensor | None = None
    """int64[B]; where each row's sequence of random bytes starts. Needed where kept is below 256."""


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """What a layer is computed with, beside its tensors."""

    library: NativeLibrary
    dtype: torch.dtype
    """Stored tensors."""
    num_heads: int
    epsilon: float
    """Of both LayerNorms."""
    attention: NativeDropout
    """Of the attention probabilities."""
    attention_output: NativeDropout
    output: NativeDropout


class EncoderLayerFunction(_Function):
    """One post-LayerNorm layer. Products are torch's; whatever lies between two of them is one pass of one kernel."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: LayerSettings,
        x_BLH: Tensor,
        key_bias_BL: Tensor | None,
        query_key_value: Tensor,
        query_key_value_bias: Tensor,
        attention_output: Tensor,
        attention_output_bias: Tensor,
        attention_gamma: Tensor,
        attention_beta: Tensor,
        intermediate: Tensor,
        intermediate_bias: Tensor,
        output: Tensor,
        output_bias: Tensor,
        output_gamma: Tensor,
        output_beta: Tensor,
    ) -> Tensor:
        """Compute; the arguments are those of torch.autograd.Function.apply."""
        call, dtype = settings.library.call, settings.dtype
        rows, length, hidden = x_BLH.shape
        shape = (rows, length, settings.num_heads, hidden // settings.num_heads)
        x = x_BLH.reshape(rows * length, hidden).to(dtype).contiguous()
        # Row by row, as torch stores them; under autocast in the stored type, once for both directions.
        weights = [w.to(dtype) for w in (query_key_value, attention_output, intermediate, output)]

        qkv = x @ weights[0].t()
        context = torch.empty_like(x)
        normalisers = torch.empty(rows * settings.num_heads * length)
        call("attention_forward", dtype, qkv, query_key_value_bias, key_bias_BL, settings.attention.keys,
             settings.attention.kept, context, normalisers, *shape)  # fmt: skip

        attended = context @ weights[1].t()
        y, moments = _add_layer_norm(settings, attended, attention_output_bias, x, attention_gamma, attention_beta,
                                     settings.attention_output, length)  # fmt: skip

        expanded = y @ weights[2].t()
        activated = torch.empty_like(expanded)
        call("gelu_forward", dtype, expanded, intermediate_bias, activated, *expanded.shape)

        transformed = activated @ weights[3].t()
        z, output_moments = _add_layer_norm(settings, transformed, output_bias, y, output_gamma, output_beta,
                                            settings.output, length)  # fmt: skip

        ctx.settings, ctx.shape, ctx.x_dtype = settings, shape, x_BLH.dtype
        ctx.save_for_backward(
            key_bias_BL, *weights, query_key_value_bias, intermediate_bias, attention_gamma, output_gamma,
            x, qkv, context, normalisers, attended, moments, y, expanded, activated, transformed, output_moments,
        )  # fmt: skip
        return z.view(rows, length, hidden)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of what `forward` was given, None where there is none."""
        (
            key_bias_BL, query_key_value, attention_output, intermediate, output, query_key_value_bias,
            intermediate_bias, attention_gamma, output_gamma,
            x, qkv, context, normalisers, attended, moments, y, expanded, activated, transformed, output_moments,
        ) = ctx.saved_tensors  # fmt: skip
        settings: LayerSettings = ctx.settings
        call, dtype, length = settings.library.call, settings.dtype, ctx.shape[1]
        dz = gradient.reshape(x.shape).to(dtype).contiguous()

        dy, d_transformed, output_sums = _add_layer_norm_backward(
            settings, dz, transformed, output_gamma, output_moments, settings.output, length
        )
        d_expanded = d_transformed @ output
        d_output = d_transformed.t() @ activated
        intermediate_sums = _sums(d_expanded.shape[1])
        call("gelu_backward", dtype, expanded, intermediate_bias, d_expanded, intermediate_sums, *expanded.shape)
        d_intermediate = d_expanded.t() @ y
        dy.addmm_(d_expanded, intermediate)

        dx, d_attended, attention_sums = _add_layer_norm_backward(
            settings, dy, attended, attention_gamma, moments, settings.attention_output, length
        )
        d_context = d_attended @ attention_output
        d_attention_output = d_attended.t() @ context
        d_qkv = torch.empty_like(qkv)
        qkv_sums = _sums(qkv.shape[1])
        call("attention_backward", dtype, d_context, qkv, query_key_value_bias, key_bias_BL, settings.attention.keys,
             settings.attention.kept, normalisers, d_qkv, qkv_sums, *ctx.shape)  # fmt: skip
        d_query_key_value = d_qkv.t() @ x
        dx.addmm_(d_qkv, query_key_value)

        attention_parts = attention_sums.sum(0).view(3, -1)  # γ, β, bias
        output_parts = output_sums.sum(0).view(3, -1)
        return (
            None, dx.view(gradient.shape).to(ctx.x_dtype), None,
            d_query_key_value.float(), qkv_sums.sum(0),
            d_attention_output.float(), attention_parts[2], attention_parts[0], attention_parts[1],
            d_intermediate.float(), intermediate_sums.sum(0),
            d_output.float(), output_parts[2], output_parts[0], output_parts[1],
        )  # fmt: skip


class LinearGeluFunction(_Function):
    """GELU(x · weightᵀ + bias): float[M, H] stored to [M, F] stored."""

    @staticmethod
    def forward(
        ctx: Any, library: NativeLibrary, dtype: torch.dtype, x: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        """Compute; the arguments are those of torch.autograd.Function.apply."""
        stored, stored_weight = x.to(dtype).contiguous(), weight.to(dtype)
        expanded = stored @ stored_weight.t()
        activated = torch.empty_like(expanded)
        library.call("gelu_forward", dtype, expanded, bias, activated, *expanded.shape)
        ctx.library, ctx.dtype, ctx.x_dtype = library, dtype, x.dtype
        ctx.save_for_backward(stored, stored_weight, bias, expanded)
        return activated

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of what `forward` was given, None where there is none."""
        x, weight, bias, expanded = ctx.saved_tensors
        # A copy: the kernel works in place, and the gradient given is not ours.
        slope = torch.empty_like(expanded).copy_(gradient)
        sums = _sums(expanded.shape[1])
        ctx.library.call("gelu_backward", ctx.dtype, expanded, bias, slope, sums, *expanded.shape)
        return None, None, (slope @ weight).to(ctx.x_dtype), (slope.t() @ x).float(), sums.sum(0)


class DropoutFunction(_Function):
    """Dropout of float[B, ...] by the random bytes of each row; nothing is kept for the backward pass but the keys."""

    @staticmethod
    def forward(ctx: Any, library: NativeLibrary, x: Tensor, keys: Tensor, kept: int) -> Tensor:
        """Compute; the arguments are those of torch.autograd.Function.apply."""
        ctx.library, ctx.kept = library, kept
        ctx.save_for_backward(keys)
        return DropoutFunction._drop(library, x, keys, kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of what `forward` was given, None where there is none."""
        return None, DropoutFunction._drop(ctx.library, gradient, ctx.saved_tensors[0], ctx.kept), None, None

    @staticmethod
    def _drop(library: NativeLibrary, x: Tensor, keys: Tensor, kept: int) -> Tensor:
        x = x.contiguous()
        dropped, length, width = torch.empty_like(x), x[0].numel() // x.shape[-1], x.shape[-1]
        library.call("dropout", x.dtype, x, keys, length, kept, dropped, x.numel() // width, width)
        return dropped


class CrossEntropyFunction(_Function):
    """Σ weight · cross-entropy of softmax(x · wordᵀ + bias), with hits and samples from the same pass.

    Returns the sum (the only output with a gradient), float32[M] 1 where the target is the most probable id, and
    int64[M] samples. The logits' gradient replaces the logits in place, so they are never copied.
    """

    @staticmethod
    def forward(
        ctx: Any,
        library: NativeLibrary,
        dtype: torch.dtype,
        x_ME: Tensor,
        word_VE: Tensor,
        bias_V: Tensor,
        vocab_size: int,
        targets_M: Tensor,
        weights_M: Tensor,
        uniform_M: Tensor,
        disallowed_M: Tensor | None,
        temperature: float,
        wants_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute; the arguments are those of torch.autograd.Function.apply."""
        stored, stored_word = x_ME.to(dtype).contiguous(), word_VE.to(dtype)
        logits_MV = stored @ stored_word.t()
        num_rows, padded = logits_MV.shape
        losses, correct = torch.empty(num_rows), torch.empty(num_rows)
        samples = torch.empty(num_rows, dtype=torch.int64)
        # Told, not asked of ctx: needs_input_grad knows nothing of torch.no_grad.
        sums = _sums(padded) if wants_gradient else None
        library.call("cross_entropy", dtype, logits_MV, bias_V, targets_M, weights_M, uniform_M, disallowed_M,
                     temperature, losses, correct, samples, sums, num_rows, vocab_size, padded)  # fmt: skip
        ctx.x_dtype = x_ME.dtype
        if sums is not None:
            ctx.save_for_backward(stored, stored_word, logits_MV, sums)
        ctx.mark_non_differentiable(correct, samples)
        return (losses * weights_M).sum(), correct, samples

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of what `forward` was given, None where there is none."""
        x, word, slopes_MV, sums = ctx.saved_tensors
        dx = (slopes_MV @ word).float() * gradient
        # x is far smaller than the table. In float32: the factor, rounded to bf16, would be off for all alike.
        d_word = (slopes_MV.t() @ (x.float() * gradient).to(x.dtype)).float()
        d_bias = sums.sum(0) * gradient
        return None, None, dx.to(ctx.x_dtype), d_word, d_bias, *([None] * 7)


def _sums(width: int) -> Tensor:
    return torch.zeros(torch.get_num_threads(), width)


def _add_layer_norm(
    settings: LayerSettings,
    x: Tensor,
    bias: Tensor,
    residual: Tensor,
    gamma: Tensor,
    beta: Tensor,
    dropout: NativeDropout,
    length: int,
) -> tuple[Tensor, Tensor]:
    """LayerNorm(residual + dropout(x + bias)) and float32[2, T] of means and 1 / σ. Leaves the sum in x."""
    y, moments = torch.empty_like(x), torch.empty(2, x.shape[0])
    settings.library.call("add_layer_norm_forward", settings.dtype, x, bias, residual, gamma, beta, dropout.keys,
                          length, dropout.kept, y, moments[0], moments[1], *x.shape, settings.epsilon)  # fmt: skip
    return y, moments


def _add_layer_norm_backward(
    settings: LayerSettings,
    gradient: Tensor,
    x: Tensor,
    gamma: Tensor,
    moments: Tensor,
    dropout: NativeDropout,
    length: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the residual and of x, and float32[threads, 3H]: sums for γ, β and the bias."""
    residual_gradient, sums = torch.empty_like(x), torch.zeros(torch.get_num_threads(), 3 * x.shape[1])
    x_gradient = torch.empty_like(x) if dropout.kept < 256 else residual_gradient
    settings.library.call("add_layer_norm_backward", settings.dtype, gradient, x, gamma, dropout.keys,
                          length, dropout.kept, moments[0], moments[1], residual_gradient, x_gradient, sums,
                          *x.shape)  # fmt: skip
    return residual_gradient, x_gradient, sums
