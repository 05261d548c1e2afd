"""The variables of `tests/golden/tensorflow/`, in Google's names, and their values: the same on every machine."""

from __future__ import annotations

import zlib

import numpy as np

VOCAB_SIZE, NUM_LAYERS, NUM_POSITIONS, EMBEDDING_SIZE = 70, 2, 16, 12
HIDDEN_SIZE = {"electra": 16, "generator": 8}
INTERMEDIATE_SIZE = {"electra": 32, "generator": 16}


def variables() -> dict[str, np.ndarray]:
    """Every variable that `run_pretraining.py` of google-research/electra would save for these sizes.

    Optimizer slots stand for two of them only, to keep the files small.
    """
    shapes: dict[str, tuple[int, ...]] = {
        "electra/embeddings/word_embeddings": (VOCAB_SIZE, EMBEDDING_SIZE),
        "electra/embeddings/position_embeddings": (NUM_POSITIONS, EMBEDDING_SIZE),
        "electra/embeddings/token_type_embeddings": (2, EMBEDDING_SIZE),
        **_norm("electra/embeddings/LayerNorm", EMBEDDING_SIZE),
        **_dense("generator_predictions/dense", HIDDEN_SIZE["generator"], EMBEDDING_SIZE),
        **_norm("generator_predictions/LayerNorm", EMBEDDING_SIZE),
        "generator_predictions/output_bias": (VOCAB_SIZE,),
        **_dense("discriminator_predictions/dense", HIDDEN_SIZE["electra"], HIDDEN_SIZE["electra"]),
        **_dense("discriminator_predictions/dense_1", HIDDEN_SIZE["electra"], 1),
    }
    for scope, hidden in HIDDEN_SIZE.items():
        shapes |= _dense(f"{scope}/embeddings_project", EMBEDDING_SIZE, hidden)
        for index in range(NUM_LAYERS):
            layer = f"{scope}/encoder/layer_{index}"
            for name in ("query", "key", "value"):
                shapes |= _dense(f"{layer}/attention/self/{name}", hidden, hidden)
            shapes |= _dense(f"{layer}/attention/output/dense", hidden, hidden)
            shapes |= _norm(f"{layer}/attention/output/LayerNorm", hidden)
            shapes |= _dense(f"{layer}/intermediate/dense", hidden, INTERMEDIATE_SIZE[scope])
            shapes |= _dense(f"{layer}/output/dense", INTERMEDIATE_SIZE[scope], hidden)
            shapes |= _norm(f"{layer}/output/LayerNorm", hidden)
    slotted = ("discriminator_predictions/dense/bias", "generator/embeddings_project/kernel")
    shapes |= {f"{name}/{slot}": shapes[name] for name in slotted for slot in ("adam_m", "adam_v")}
    return {name: _values(name, shape) for name, shape in shapes.items()}


def other_variables() -> dict[str, np.ndarray]:
    """One of each other type that is read; `bfloat16` stands for what float32 keeps of its values."""
    numbers = np.arange(-6, 6).reshape(3, 4)
    return {
        "global_step": np.array(766_000, np.int64),
        "types/int32": (numbers * 1_000_003).astype(np.int32),
        "types/float16": (numbers / 8).astype(np.float16),
        "types/bfloat16": (numbers / 8).astype(np.float32),
        "types/empty": np.zeros((0, 3), np.float32),
    }


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Float32 in [-0.5, 0.5), exact in 24 bits: no library's random numbers, which could change."""
    count = np.prod(shape, dtype=np.uint64)
    mixed = np.arange(1, count + np.uint64(1), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(zlib.crc32(name.encode()) * 0xBF58476D1CE4E5B9 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
    values = ((mixed >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5).astype(np.float32)
    if name.endswith("gamma"):
        values += 1
    return values.reshape(shape)


def _dense(scope: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{scope}/kernel": (inputs, outputs), f"{scope}/bias": (outputs,)}


def _norm(scope: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{scope}/beta": (width,), f"{scope}/gamma": (width,)}
