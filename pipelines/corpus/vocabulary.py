"""Stage 2: the tokenizer, trained on the training documents or taken as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import ray

from pipelines import storage
from pipelines.corpus.cleaning import split_at_spaces
from pipelines.corpus.documents import PartWork, Split, part_work, read_part
from pipelines.corpus.progress import Progress
from pipelines.corpus.ray_data import CPUS_PER_TASK
from pipelines.corpus.texts import Texts
from pipelines.errors import PipelineError
from pipelines.joblogs.context import current_context, kept_call
from pipelines.specs.corpus import PretrainedTokenizerSpec, TokenizerSpec, WordPieceSpec
from pipelines.storage.artifacts import MANIFEST_FILE
from pipelines.tokenizer import read_pretrained, save_tokenizer, train_wordpiece, warn_of_ignored_rules, with_rules

FORMAT_VERSION = 1


def digest_inputs(spec: TokenizerSpec, texts_digest: str, validation_fraction: float) -> dict[str, Any]:
    """Everything that decides the tokenizer's file."""
    inputs: dict[str, Any] = {"artifact": "tokenizer", "format": FORMAT_VERSION}
    if isinstance(spec, WordPieceSpec):
        # Held-out text is not trained on, so the split counts.
        words = {"texts": texts_digest, "validation_fraction": validation_fraction}
        return inputs | words | {"spec": spec.model_dump(mode="json")}
    spec = with_rules(spec)
    inputs["content"] = hashlib.sha256(storage.read_bytes(spec.uri)).hexdigest()
    rules = {"lowercase": spec.lowercase, "strip_accents": spec.strip_accents}
    return inputs | ({} if spec.uri.endswith(".json") else rules)


def write_tokenizer(uri: str, spec: TokenizerSpec, texts: Texts, split: Split, progress: Progress) -> None:
    """Train or copy the tokenizer, and write its folder, the manifest last."""
    if isinstance(spec, PretrainedTokenizerSpec):
        warn_of_ignored_rules(spec, "tokenizer")
        save_tokenizer(read_pretrained(spec), uri)
    else:
        size = min(texts.num_bytes, spec.max_training_bytes)
        progress.at(0.0, f"on {size / 1e6:.1f} MB")
        task: Any = ray.remote(num_cpus=CPUS_PER_TASK)(kept_call)
        argument = (uri, spec, list(part_work(texts)), texts.num_bytes, split)
        _wait(task.options(name="tokenizer").remote(current_context(), "tokenizer", _train, argument), progress)
    storage.write_json(storage.join(uri, MANIFEST_FILE), {"format": FORMAT_VERSION})


def _wait(task: Any, progress: Progress) -> None:
    # When the wait is broken off, the task ends with this process. It is not cancelled: see `run_side_by_side`.
    while not ray.wait([task], timeout=1)[0]:
        progress.waiting(None)
    error = ray.get(task)
    if error is not None:
        raise error


def _train(argument: tuple[str, WordPieceSpec, list[PartWork], int, Split]) -> PipelineError | None:
    """Runs in a Ray task. What goes wrong is returned: raised, it would come back wrapped."""
    uri, spec, parts, num_bytes, split = argument
    try:
        share = min(1.0, spec.max_training_bytes / max(1, num_bytes))
        save_tokenizer(train_wordpiece(lambda: sample_evenly(parts, split, share), spec), uri)
    except PipelineError as error:
        return error
    return None


def sample_evenly(parts: list[PartWork], split: Split, share: float) -> Iterator[str]:
    """Pieces of the training documents, spread evenly over all of them, at most `share` of their bytes.

    Every piece earns `share` of its size; one is taken whenever enough has been earned to pay for it.
    """
    earned = 0.0
    for part in parts:
        for document in read_part(part, split):
            if document.is_held_out:
                continue
            for piece in split_at_spaces(document.text):
                size = len(piece.encode())
                earned += size * share
                if earned >= size:
                    earned -= size
                    yield piece
