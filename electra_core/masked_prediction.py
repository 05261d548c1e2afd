"""A language-model head's answer at masked positions, by the fastest way at hand: loss, hits, and a sample each where
one is wanted.

M masked positions, H hidden_size, E embedding_size, V padded_vocab_size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_core.heads import MaskedLanguageModelHead
from electra_core.kernels import compute_dtype, native_kernels
from electra_core.native.functions import CrossEntropyFunction
from electra_core.native.library import NativeLibrary
from electra_core.sampling import sample, sampling_weights


class MaskedScore(NamedTuple):
    """How well the targets were predicted."""

    loss: Tensor
    """Cross-entropy summed over the positions by their weights, nats, 0-dim; the only part with a gradient."""
    is_correct: Tensor
    """float32[M], 1 where the most probable id is the target."""


class MaskedPrediction(NamedTuple):
    """What one visit to the logits tells."""

    loss: Tensor
    """As in `MaskedScore`."""
    is_correct: Tensor
    """As in `MaskedScore`."""
    samples: Tensor
    """int64[M]."""


def predict_masked(
    head: MaskedLanguageModelHead,
    word_VE: Tensor,
    hidden_MH: Tensor,
    targets_M: Tensor,
    weights_M: Tensor,
    uniform_M: Tensor,
    temperature: float = 1.0,
    disallowed_M: Tensor | None = None,
) -> MaskedPrediction:
    """Logits at masked positions, and all that a generator wants of them. Losses and sampling are float32 under
    autocast too.

    Args:
        head: the generator's.
        word_VE: the tied word embeddings, float[V, E].
        hidden_MH: hidden states at the masked positions, float[M, H].
        targets_M: the original ids, int64[M].
        weights_M: float32[M]; 0 at filler.
        uniform_M: float32[M] inside (0, 1), one number per sample.
        temperature: divides the logits for the samples alone.
        disallowed_M: int64[M], an id per position that is never sampled; None allows all.
    """
    transformed_ME, bias_V = head.transform(hidden_MH), head.padded_bias()
    native = native_kernels(transformed_ME, bias_V.shape[0])
    if native is not None:
        return _in_one_pass(
            native, head, word_VE, transformed_ME, bias_V, targets_M, weights_M, uniform_M, temperature, disallowed_M
        )
    logits_MV = F.linear(transformed_ME, word_VE, bias_V).float()
    sampling_MV = sampling_weights(logits_MV.detach(), temperature, disallowed_M)
    return MaskedPrediction(*_score(logits_MV, targets_M, weights_M), sample(sampling_MV, uniform_M))


def score_masked(
    head: MaskedLanguageModelHead, word_VE: Tensor, hidden_MH: Tensor, targets_M: Tensor, weights_M: Tensor
) -> MaskedScore:
    """`predict_masked` where nothing is sampled. Arguments as there."""
    transformed_ME, bias_V = head.transform(hidden_MH), head.padded_bias()
    native = native_kernels(transformed_ME, bias_V.shape[0])
    if native is not None:
        anywhere_M = torch.full_like(weights_M, 0.5)  # the kernel samples in any case
        prediction = _in_one_pass(native, head, word_VE, transformed_ME, bias_V, targets_M, weights_M, anywhere_M)
        return MaskedScore(prediction.loss, prediction.is_correct)
    return _score(F.linear(transformed_ME, word_VE, bias_V).float(), targets_M, weights_M)


def _score(logits_MV: Tensor, targets_M: Tensor, weights_M: Tensor) -> MaskedScore:
    losses_M = F.cross_entropy(logits_MV, targets_M, reduction="none")
    with torch.no_grad():
        is_correct = (logits_MV.argmax(dim=-1) == targets_M).float()
    return MaskedScore((losses_M * weights_M).sum(), is_correct)


def _in_one_pass(
    library: NativeLibrary,
    head: MaskedLanguageModelHead,
    word_VE: Tensor,
    transformed_ME: Tensor,
    bias_V: Tensor,
    targets_M: Tensor,
    weights_M: Tensor,
    uniform_M: Tensor,
    temperature: float = 1.0,
    disallowed_M: Tensor | None = None,
) -> MaskedPrediction:
    return MaskedPrediction(
        *CrossEntropyFunction.apply(
            library,
            compute_dtype(transformed_ME),
            transformed_ME,
            word_VE,
            bias_V,
            head.vocab_size,
            targets_M,
            weights_M,
            uniform_M,
            disallowed_M,
            temperature,
            torch.is_grad_enabled(),
        )
    )
