"""A folder in the layout of Transformers as a network that predicts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer

from pipelines.errors import CorpusError
from pipelines.predicting.errors import PredictError
from pipelines.specs.prediction import PredictionType
from pipelines.storage.artifacts import SpecialTokenIds
from pipelines.tokenizer import pretrained_file, special_ids, vocab_size

CONFIG_FILE = "config.json"
_MAX_SHOWN = 8
TASKS: dict[str, PredictionType] = {
    "ElectraForPreTraining": "replaced_token_detection",
    "ElectraForMaskedLM": "fill_mask",
    "ElectraForSequenceClassification": "classification",
    "ElectraForTokenClassification": "token_classification",
    "ElectraForQuestionAnswering": "question_answering",
    "ElectraForMultipleChoice": "multiple_choice",
}
"""What each class of Transformers does. No other class is loaded, whatever a config.json names."""


@dataclass(frozen=True)
class LoadedModel:
    """A network ready to predict on the CPU."""

    network: Any
    """Of the class `architecture`, in float32 and in eval mode."""
    tokenizer: Tokenizer
    """Without truncation or padding of its own."""
    special: SpecialTokenIds
    architecture: str
    task: PredictionType
    labels: tuple[str, ...]
    """In the order of the outputs; of a task that has labels."""
    max_length: int
    """Tokens of a row at most."""


def load_model(folder: Path, tokenizer_folder: Path | None = None) -> LoadedModel:
    """Load a network and its tokenizer; nothing is fetched from anywhere, and no code of the folder is run.

    Args:
        folder: with config.json and the weights.
        tokenizer_folder: with tokenizer.json; the same when absent.

    Raises:
        PredictError: it is no Electra model, lacks weights of its class, or has no tokenizer that fits.
    """
    architecture = _architecture(folder)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    try:
        network, loading = getattr(transformers, architecture).from_pretrained(
            str(folder), local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # of a damaged file Transformers and safetensors raise all kinds
        raise _unsuitable(f"{folder.name} cannot be loaded as {architecture}: {_in_short(error)}") from error
    missing = sorted(loading["missing_keys"])
    if missing:
        # Transformers would start them at random and answer all the same.
        raise _unsuitable(f"the model must hold every weight of {architecture}, got no {missing[0]}")
    tokenizer, model_max_length = _tokenizer(tokenizer_folder or folder)
    config = network.config
    task = _task(architecture, config)
    if vocab_size(tokenizer) > config.vocab_size:
        raise _unsuitable(
            f"the tokenizer must have at most {config.vocab_size} entries, those of the model, "
            f"got {vocab_size(tokenizer)}"
        )
    # As in training, where a text that speaks of "[SEP]" does not end there; what is filled is asked for by its name.
    tokenizer.encode_special_tokens = task != "fill_mask"
    return LoadedModel(
        network=network.eval(),
        tokenizer=tokenizer,
        special=_special(tokenizer),
        architecture=architecture,
        task=task,
        labels=_labels(config) if task in ("classification", "token_classification") else (),
        # The tokenizer may name the length the model was trained on, past which its positions mean nothing.
        max_length=min(int(config.max_position_embeddings), model_max_length),
    )


def _architecture(folder: Path) -> str:
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        names = config["architectures"]
        model_type, architecture = config["model_type"], names[0]
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise _unsuitable(f"{folder.name}/{CONFIG_FILE} must name model_type and architectures: {error!r}") from error
    if model_type != "electra" or architecture not in TASKS:
        raise _unsuitable(f"architectures must be one of {', '.join(TASKS)}, got {architecture!r} of {model_type!r}")
    return str(architecture)


def _tokenizer(folder: Path) -> tuple[Tokenizer, int]:
    try:
        pretrained_file(str(folder))  # of nothing Transformers makes an empty vocabulary
        # Asked outright: left open, a folder with code of its own makes Transformers ask at the terminal.
        found = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        tokenizer: Tokenizer = found.backend_tokenizer
    except Exception as error:  # as above
        raise _unsuitable(f"{folder.name} must hold the model's tokenizer: {_in_short(error)}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, int(found.model_max_length)


def _special(tokenizer: Tokenizer) -> SpecialTokenIds:
    try:
        return special_ids(tokenizer)
    except CorpusError as error:
        raise _unsuitable(str(error)) from error


def _task(architecture: str, config: Any) -> PredictionType:
    task = TASKS[architecture]
    if task != "classification":
        return task
    if config.problem_type == "multi_label_classification":
        raise _unsuitable(
            "problem_type must not be 'multi_label_classification': one label is shown, and no set of them"
        )
    if config.problem_type == "regression" and config.num_labels > 1:
        raise _unsuitable(f"a regression must have one output, got {config.num_labels}")
    return "regression" if config.num_labels == 1 else "classification"


def _labels(config: Any) -> tuple[str, ...]:
    numbers = sorted(config.id2label)
    if numbers != list(range(len(numbers))):
        shown = ", ".join(map(str, numbers[:_MAX_SHOWN]))
        raise _unsuitable(f"id2label must number the outputs from 0 to {len(numbers) - 1}, got {shown}")
    labels = tuple(str(config.id2label[number]) for number in numbers)
    twice = [label for label, times in Counter(labels).items() if times > 1]
    if twice:
        # Probabilities are given by label: one of the two would be lost.
        raise _unsuitable(f"id2label must give each output a label of its own, got {twice[0]!r} more than once")
    return labels


def _unsuitable(message: str) -> PredictError:
    return PredictError("unsuitable_model", message)


def _in_short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
