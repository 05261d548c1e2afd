"""From texts to rows of tokens, made as finetuning makes them, and from rows to logits.

L positions of a row, C labels, V entries of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from electra_core.batches import TokenBatch
from pipelines.finetuning.batches import RowCutter
from pipelines.predicting.errors import PredictError
from pipelines.predicting.model import LoadedModel
from pipelines.specs.labelled import LabelledData
from pipelines.specs.task import ClassificationTask, QuestionAnsweringTask, UserTask
from pipelines.tasks.examples import Example, QuestionExample, TextExample
from pipelines.tasks.feature_maker import FeatureMaker
from pipelines.tasks.features import Features

TOKENS_PER_BATCH = 1024
"""Padding included. Little, for a generator's logits are as many as the vocabulary has entries for each of them."""

# What makes rows takes the rules from a task of finetuning, and that has files; none is read here.
_NO_FILES = LabelledData(train=("none.jsonl",))
_TEXT = ClassificationTask(data=_NO_FILES)
_PAIR = ClassificationTask(data=_NO_FILES, text_pair="text_pair")
QUESTION = QuestionAnsweringTask(data=_NO_FILES)
"""The rules for windows and spans: those of SQuAD's scripts."""


@dataclass(frozen=True)
class Pieces:
    """The tokens of one text that fit into a row, [CLS] and [SEP] aside."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    """Start and end of each, in characters of the text."""
    cut_offsets: list[tuple[int, int]]
    """Of the tokens that did not fit."""

    @property
    def was_cut(self) -> bool:
        """Not all tokens fit."""
        return bool(self.cut_offsets)


def pieces_of(model: LoadedModel, text: str) -> Pieces:
    """A text's tokens, in the order in which `text_rows` has them from its second position on."""
    encoding = model.tokenizer.encode(text, add_special_tokens=False)
    room = model.max_length - 2
    return Pieces(
        ids=encoding.ids[:room],
        tokens=encoding.tokens[:room],
        offsets=encoding.offsets[:room],
        cut_offsets=encoding.offsets[room:],
    )


def num_tokens(model: LoadedModel, text: str) -> int:
    """Tokens of a text, however many fit."""
    return len(model.tokenizer.encode(text, add_special_tokens=False).ids)


def text_rows(model: LoadedModel, text: str) -> Features:
    """One row: [CLS] text [SEP]."""
    return _maker(model, _TEXT).make([TextExample("", text)])


def pair_rows(model: LoadedModel, pairs: Sequence[tuple[str, str]]) -> Features:
    """A row for each pair: [CLS] first [SEP] second [SEP], the longer of the two cut first."""
    examples: list[Example] = [TextExample("", first, second) for first, second in pairs]
    return _maker(model, _PAIR).make(examples)


def question_rows(model: LoadedModel, question: str, context: str) -> Features:
    """A row for each window of the context: [CLS] question [SEP] window [SEP]. Each begins in the middle of the one
    before: with the 128 tokens of training, rows of 512 would read all but the ends three or four times.
    """
    longest = max_query_tokens(model)
    room = model.max_length - 3 - min(num_tokens(model, question), longest)
    task = QUESTION.model_copy(update={"max_query_tokens": longest, "document_stride": max(1, room // 2)})
    return _maker(model, task).make([QuestionExample("", question, context)])


def max_query_tokens(model: LoadedModel) -> int:
    """Tokens of a question at most; half of a short row is left to the context."""
    return min(QUESTION.max_query_tokens, model.max_length // 2)


def _maker(model: LoadedModel, task: UserTask) -> FeatureMaker:
    return FeatureMaker(task, model.tokenizer, model.special, (), model.max_length)


@torch.inference_mode()
def logits_of_rows(model: LoadedModel, features: Features) -> list[npt.NDArray[np.float32]]:
    """What the network says of each row, padding aside: [L] of replaced tokens, [L, V] of a generator, [L, C] of labels
    of tokens, [L, 2] of starts and ends of answers, [C] of a text, [1] of a choice.

    Raises:
        PredictError: a logit is not finite.
    """
    cutter = RowCutter(features, 1, model.special.pad, torch.device("cpu"))
    lengths = cutter.lengths
    num_rows = max(1, TOKENS_PER_BATCH // int(lengths.max()))
    found: list[npt.NDArray[np.float32]] = []
    for start in range(0, len(lengths), num_rows):
        rows = np.arange(start, min(start + num_rows, len(lengths)), dtype=np.int64)
        logits = _logits(model, cutter.cut(rows).tokens)
        if not bool(torch.isfinite(logits).all()):
            raise PredictError("unsuitable_model", "the model's outputs must be finite, got NaN or infinity")
        values = logits.numpy()
        is_by_token = model.task not in ("classification", "regression", "multiple_choice")
        found += [
            values[place, : lengths[row]].copy() if is_by_token else values[place] for place, row in enumerate(rows)
        ]
    return found


def _logits(model: LoadedModel, tokens: TokenBatch) -> Tensor:
    types = tokens.token_type_ids
    given = {
        "input_ids": tokens.input_ids,
        "attention_mask": tokens.attention_mask.long(),
        "token_type_ids": torch.zeros_like(tokens.input_ids) if types is None else types,
    }
    if model.task == "multiple_choice":
        # The class takes the choices of an example together, and scores each by itself.
        output = model.network(**{name: tensor[None] for name, tensor in given.items()})
        choices: Tensor = output.logits.reshape(-1, 1)
        return choices
    output = model.network(**given)
    if model.task == "question_answering":
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    logits: Tensor = output.logits
    return logits
