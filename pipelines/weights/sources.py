"""Weights in other people's files, and in ours: each source read into state dicts, with the sizes it tells."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from electra_core.config import EncoderConfig
from electra_core.conversion.collector import clean_names
from electra_core.conversion.from_tensorflow import NETWORKS, transformers_state, unknown_variables, weights_of
from electra_core.conversion.sizes import encoder_config, used_rows
from pipelines import storage
from pipelines.errors import CheckpointError
from pipelines.job import JobDirectory
from pipelines.specs.documents import SPEC_FILE
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.spec_errors import SpecError
from pipelines.tensorflow_checkpoint.bundle import TensorflowCheckpoint
from pipelines.training.checkpoint import Checkpoint, list_checkpoints, read_state

CONFIG_FILE = "config.json"
_SAFETENSORS, _PICKLED = "model.safetensors", "pytorch_model.bin"
_INDEX_SUFFIX = ".index.json"
"""Of the file that says in which of several files a tensor is."""
# Exports leave out of config.json what equals these defaults of ElectraConfig.
_DEFAULT_HEADS, _DEFAULT_EPS = 4, 1e-12
_RULES = {"model_type": (None, "electra"), "hidden_act": ("gelu", "gelu"), "position_embedding_type": ("absolute",) * 2}
"""Fields of config.json to their default and the only value our networks compute."""
_OTHER_FIELDS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("initializer_range", "position_embedding_init", "attention_init"),
)


@dataclass(frozen=True)
class NetworkWeights:
    """One network in the names of Transformers."""

    uri: str
    state: dict[str, Tensor]
    sizes: EncoderConfig
    is_complete: bool = True
    """The source says how many heads there are; where it does not, `sizes` has one for each 64 of the width."""
    unknown: tuple[str, ...] = ()
    """Tensors of the source that belong to no network."""


@dataclass(frozen=True)
class OurWeights:
    """A checkpoint of a job of ours."""

    uri: str
    state: dict[str, Tensor]
    vocab_size: int
    spec: PretrainSpec | None
    """Of the job, where its folder lies around the checkpoint's."""
    job_uri: str


def read_transformers(uri: str) -> NetworkWeights:
    """A folder with config.json and model.safetensors or pytorch_model.bin, in one file or in several.

    Raises:
        CheckpointError: it holds no Electra network, or one our networks cannot compute.
        StorageError: a file cannot be read.
    """
    config = storage.read_json(storage.join(uri, CONFIG_FILE))
    for field, (default, rule) in _RULES.items():
        if config.get(field, default) != rule:
            raise CheckpointError(f"{uri}/{CONFIG_FILE}: {field} must be {rule!r}, got {config.get(field)!r}")
    try:
        state = clean_names(_read_tensors(uri))
        heads, eps = config.get("num_attention_heads", _DEFAULT_HEADS), config.get("layer_norm_eps", _DEFAULT_EPS)
        sizes = encoder_config(state, heads, eps)
        others = {field: config[field] for field in _OTHER_FIELDS if field in config}
        return NetworkWeights(uri, state, EncoderConfig.model_validate({**dict(sizes), **others}))
    except ValueError as error:
        raise CheckpointError(f"{uri}: {error}") from error


def read_tensorflow(prefix: str, wanted: tuple[str, ...] = NETWORKS) -> dict[str, NetworkWeights]:
    """The networks a checkpoint of google-research/electra holds, of those that are wanted.

    Raises:
        CheckpointError: it holds none of them, or is damaged.
        StorageError: a file cannot be read.
    """
    checkpoint = TensorflowCheckpoint(prefix)
    names = {network: weights_of(checkpoint.entries, network) for network in wanted}
    arrays = checkpoint.read({name.variable for found in names.values() for name in found})
    values = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in arrays.items()}
    unknown = unknown_variables(checkpoint.entries)
    try:
        networks = {}
        for network, found in names.items():
            if found:
                state = transformers_state(found, values)
                networks[network] = NetworkWeights(checkpoint.prefix, state, encoder_config(state), False, unknown)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.prefix}: {error}") from error
    if not networks:
        raise CheckpointError(
            f"{checkpoint.prefix} must hold variables of ELECTRA ({' or '.join(wanted)}), "
            f"got {', '.join(sorted(checkpoint.entries)[:3]) or 'none'}"
        )
    return networks


def read_ours(uri: str) -> OurWeights:
    """A checkpoint of ours: a `step_…` folder, or the newest of a job or of its `checkpoints` folder.

    Raises:
        CheckpointError: there is none, or it is damaged.
        StorageError: a file cannot be read.
    """
    checkpoint = _find_checkpoint(storage.normalise(uri))
    state: dict[str, Tensor] = read_state(checkpoint)["networks"]
    if "embeddings.word" not in state:
        raise CheckpointError(f"{checkpoint.uri} must hold embeddings.word, got {len(state)} other tensors")
    job = JobDirectory(checkpoint.uri.rsplit("/", 2)[0])
    spec = None
    if storage.exists(job.path(SPEC_FILE)):
        try:
            found = job.read_spec()
        except SpecError as error:
            raise CheckpointError(f"{job.path(SPEC_FILE)} must be a spec of this version: {error}") from error
        if not isinstance(found, PretrainSpec):
            raise CheckpointError(f"{job.path(SPEC_FILE)} must be of kind 'pretrain', got {found.kind!r}")
        spec = found
    return OurWeights(checkpoint.uri, state, used_rows(state["embeddings.word"]), spec, job.uri)


def is_ours(uri: str) -> bool:
    """Whether `uri` looks like a job of ours or a part of one."""
    return any(storage.exists(storage.join(uri, name)) for name in ("checkpoints", "manifest.json")) or bool(
        list_checkpoints(uri)
    )


def _find_checkpoint(uri: str) -> Checkpoint:
    manifest_uri = storage.join(uri, "manifest.json")
    if storage.exists(manifest_uri):
        manifest = storage.read_json(manifest_uri)
        if "step" not in manifest or "sha256" not in manifest:
            raise CheckpointError(
                f"{manifest_uri} must be that of a checkpoint, got keys {', '.join(sorted(manifest))}"
            )
        return Checkpoint(uri, int(manifest["step"]), str(manifest["sha256"]))
    checkpoints = list_checkpoints(storage.join(uri, "checkpoints")) or list_checkpoints(uri)
    if not checkpoints:
        raise CheckpointError(f"{uri} must be or hold a complete checkpoint, got none")
    return checkpoints[-1]


def _read_tensors(uri: str) -> dict[str, Tensor]:
    for name, read in ((_SAFETENSORS, _from_safetensors), (_PICKLED, _from_pickle)):
        file = storage.join(uri, name)
        if storage.exists(file):
            return read(file, storage.read_bytes(file))
        if storage.exists(file + _INDEX_SUFFIX):
            parts = [storage.join(uri, part) for part in _parts(file + _INDEX_SUFFIX)]
            return {key: tensor for part in parts for key, tensor in read(part, storage.read_bytes(part)).items()}
    raise CheckpointError(f"{uri} must hold {_SAFETENSORS} or {_PICKLED}, got neither")


def _parts(index: str) -> list[str]:
    """The files that the index of a large model names, all beside it."""
    files = storage.read_json(index).get("weight_map")
    names = sorted(set(files.values())) if isinstance(files, dict) and all(map(_is_name, files.values())) else []
    if not names:
        raise CheckpointError(f"{index} must name files beside it under weight_map")
    return names


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and "/" not in value and value not in ("", ".", "..")


def _from_safetensors(uri: str, data: bytes) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{uri} must be a safetensors file: {error}") from error
    return tensors


def _from_pickle(uri: str, data: bytes) -> dict[str, Tensor]:
    try:
        # Tensors alone: anything else in a pickle could run as code.
        state: Any = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise CheckpointError(f"{uri} must be a state dict and nothing else: {str(error)[:300]}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CheckpointError(f"{uri} must be a state dict of tensors, got {type(state).__name__}")
    return dict(state)
