"""ELECTRA's forward pass in NumPy, from variables in Google's names and nothing of ours: a judge for conversions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

Variables = Mapping[str, np.ndarray]
HEAD_SIZE = 64


def discriminator_logits(variables: Variables, input_ids: np.ndarray, token_type_ids: np.ndarray) -> np.ndarray:
    """float[B, L]: the logit of P(replaced)."""
    hidden = encode(variables, "electra", input_ids, token_type_ids)
    hidden = gelu(dense(variables, "discriminator_predictions/dense", hidden))
    return dense(variables, "discriminator_predictions/dense_1", hidden)[..., 0]


def generator_logits(variables: Variables, input_ids: np.ndarray, token_type_ids: np.ndarray) -> np.ndarray:
    """float[B, L, V]."""
    hidden = encode(variables, "generator", input_ids, token_type_ids)
    hidden = gelu(dense(variables, "generator_predictions/dense", hidden))
    hidden = layer_norm(variables, "generator_predictions/LayerNorm", hidden)
    return hidden @ variables["electra/embeddings/word_embeddings"].T + variables["generator_predictions/output_bias"]


def encode(variables: Variables, scope: str, input_ids: np.ndarray, token_type_ids: np.ndarray) -> np.ndarray:
    tables = {name: variables[f"electra/embeddings/{name}_embeddings"] for name in ("word", "position", "token_type")}
    x = tables["word"][input_ids] + tables["position"][: input_ids.shape[1]] + tables["token_type"][token_type_ids]
    x = dense(variables, f"{scope}/embeddings_project", layer_norm(variables, "electra/embeddings/LayerNorm", x))
    depth = sum(name.startswith(f"{scope}/encoder/") and name.endswith("query/bias") for name in variables)
    for index in range(depth):
        layer = f"{scope}/encoder/layer_{index}"
        attended = dense(variables, f"{layer}/attention/output/dense", attend(variables, layer, x))
        x = layer_norm(variables, f"{layer}/attention/output/LayerNorm", x + attended)
        wide = gelu(dense(variables, f"{layer}/intermediate/dense", x))
        x = layer_norm(variables, f"{layer}/output/LayerNorm", x + dense(variables, f"{layer}/output/dense", wide))
    return x


def attend(variables: Variables, layer: str, x: np.ndarray) -> np.ndarray:
    rows, length, width = x.shape
    heads = max(1, width // HEAD_SIZE)
    query, key, value = (
        dense(variables, f"{layer}/attention/self/{name}", x).reshape(rows, length, heads, -1).transpose(0, 2, 1, 3)
        for name in ("query", "key", "value")
    )
    scores = np.exp(query @ key.swapaxes(-1, -2) / math.sqrt(width // heads))
    context = scores / scores.sum(axis=-1, keepdims=True) @ value
    return context.transpose(0, 2, 1, 3).reshape(rows, length, width)


def dense(variables: Variables, scope: str, x: np.ndarray) -> np.ndarray:
    return x @ variables[f"{scope}/kernel"].astype(np.float64) + variables[f"{scope}/bias"]


def layer_norm(variables: Variables, scope: str, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    return scaled * variables[f"{scope}/gamma"] + variables[f"{scope}/beta"]


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
