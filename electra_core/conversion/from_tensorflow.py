"""Google's TensorFlow checkpoints as state dicts of Transformers' Electra classes.

Source: google-research/electra, `model/modeling.py` and `run_pretraining.py`, where the variables are made. From there
`from_transformers` leads to our networks, and nothing at all is left to do for a folder Transformers reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

NETWORKS = ("discriminator", "generator")
_SCOPES = {"discriminator": "electra", "generator": "generator"}
_SLOTS = ("adam_m", "adam_v")
_NOT_WEIGHTS = ("global_step",)
_KINDS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
_HEADS = {
    "discriminator_predictions/dense": "discriminator_predictions.dense",
    "discriminator_predictions/dense_1": "discriminator_predictions.dense_prediction",
    "generator_predictions/dense": "generator_predictions.dense",
    "generator_predictions/LayerNorm": "generator_predictions.LayerNorm",
}


@dataclass(frozen=True)
class TensorflowName:
    """What one variable of the checkpoint is."""

    variable: str
    network: str
    """`discriminator` or `generator`."""
    tensor: str
    """Its name in Transformers."""
    is_transposed: bool
    """TensorFlow's kernels are [in, out], torch's weights [out, in]."""


def weights_of(variables: Iterable[str], network: str) -> tuple[TensorflowName, ...]:
    """The variables one network is made of; empty where the checkpoint does not hold it.

    Embeddings are shared: without tables of its own under `generator/embeddings` the generator takes those of
    `electra/embeddings`. Without an encoder of its own it shares that too, as with G's `untied_generator` off.

    Args:
        variables: names in the checkpoint.
        network: `discriminator` or `generator`.
    """
    names = sorted(variables)
    scope = embeddings = _SCOPES[network]
    if network == "generator":
        has_head = any(name.startswith("generator_predictions/") for name in names)
        has_encoder = any(name.startswith("generator/encoder/") for name in names)
        if not has_head and not has_encoder:
            return ()
        scope = "generator" if has_encoder else "electra"
        has_embeddings = any(name.startswith("generator/embeddings/") for name in names)
        embeddings = "generator" if has_embeddings else "electra"
    elif not any(name.startswith("electra/encoder/") for name in names):
        return ()
    found = (_name(name, network, scope, embeddings) for name in names)
    return tuple(name for name in found if name is not None)


def unknown_variables(variables: Iterable[str]) -> tuple[str, ...]:
    """Variables that belong to no network and are neither optimizer slots nor the step: a finetuning head, say."""
    names = set(variables)
    known = {name.variable for network in NETWORKS for name in weights_of(names, network)}
    return tuple(name for name in sorted(names - known) if name not in _NOT_WEIGHTS and not name.endswith(_SLOTS))


def transformers_state(names: Iterable[TensorflowName], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict for `ElectraForPreTraining` or `ElectraForMaskedLM`.

    Args:
        names: from `weights_of`.
        values: variable to its values; those that `names` does not name are not looked at.

    Raises:
        ValueError: a kernel is no matrix.
    """
    state = {}
    for name in names:
        value = values[name.variable]
        if name.is_transposed:
            if value.ndim != 2:
                raise ValueError(f"{name.variable} must be a matrix, got shape {tuple(value.shape)}")
            value = value.T.contiguous()
        state[name.tensor] = value
    return state


def _name(variable: str, network: str, scope: str, embeddings: str) -> TensorflowName | None:
    """What a variable is to a network whose encoder and embeddings lie under these scopes; None if it is nothing."""
    head, _, last = variable.rpartition("/")
    table = re.fullmatch(rf"{embeddings}/embeddings/(word|position|token_type)_embeddings", variable)
    if table:
        return TensorflowName(variable, network, f"electra.embeddings.{table[1]}_embeddings.weight", False)
    if variable == "generator_predictions/output_bias" and network == "generator":
        return TensorflowName(variable, network, "generator_lm_head.bias", False)
    if last not in _KINDS:
        return None
    if head in _HEADS and head.startswith(network):
        module = _HEADS[head]
    elif head == f"{embeddings}/embeddings/LayerNorm":
        module = "electra.embeddings.LayerNorm"
    elif head == f"{scope}/embeddings_project" or re.match(rf"{scope}/encoder/layer_\d+/", head):
        module = re.sub(r"layer_(\d+)", r"layer.\1", f"electra/{head.partition('/')[2]}").replace("/", ".")
    else:
        return None
    return TensorflowName(variable, network, f"{module}.{_KINDS[last]}", last == "kernel")
