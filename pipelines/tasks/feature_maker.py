"""Examples as rows of token ids, by the kind of task."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipelines.errors import DataError
from pipelines.specs.task import (
    ClassificationTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
    UserTask,
)
from pipelines.storage.artifacts import SpecialTokenIds
from pipelines.tasks.encodings import Text, TextEncoder
from pipelines.tasks.examples import ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from pipelines.tasks.features import NO_LABEL, Features, Row, Rows


class FeatureMaker:
    """Tokenises the splits of one task.

    Args:
        task: says what is read.
        tokenizer: without truncation or padding of its own.
        special: ids of its special tokens.
        labels: of a classification, in the order of the model's outputs.
        max_length: tokens of a row at most.
    """

    def __init__(
        self,
        task: UserTask,
        tokenizer: Tokenizer,
        special: SpecialTokenIds,
        labels: tuple[str, ...],
        max_length: int,
    ) -> None:
        self._task = task
        self._encoder = TextEncoder(tokenizer, max_length)
        self._special = special
        self._label_ids = {label: index for index, label in enumerate(labels)}
        self._max_length = max_length

    def make(self, examples: Sequence[Example], *, is_for_training: bool = False) -> Features:
        """The rows of a split; pairs both ways round for training, where the task asks for it.

        Raises:
            DataError: a multiple choice whose examples have unlike numbers of choices, or windows that are too short
                for the questions or, while training, for every answer.
        """
        match self._task:
            case ClassificationTask() | RegressionTask():
                return self._texts(_of_type(examples, TextExample), is_for_training)
            case TokenClassificationTask():
                return self._tagged(_of_type(examples, TaggedExample))
            case QuestionAnsweringTask():
                return self._questions(_of_type(examples, QuestionExample), is_for_training)
            case MultipleChoiceTask():
                return self._choices(_of_type(examples, ChoiceExample))

    def _texts(self, examples: list[TextExample], is_for_training: bool) -> Features:
        task = self._task
        assert isinstance(task, ClassificationTask | RegressionTask)
        rows = Rows()
        firsts = self._encoder.texts([example.text for example in examples])
        pairs = self._encoder.texts([example.text_pair or "" for example in examples]) if task.text_pair else None
        labels: list[float] = []
        for index, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            label = self._label_of(example)
            pair = None if pairs is None else next(pairs)
            rows.add(index, self._joined(first, pair))
            labels.append(label)
            if is_for_training and task.swap_pairs and pair is not None:
                rows.add(index, self._joined(pair, first))
                labels.append(label)
        is_number = isinstance(task, RegressionTask)
        return rows.features(np.array(labels, np.float32 if is_number else np.int64))

    def _label_of(self, example: TextExample) -> float:
        if isinstance(self._task, RegressionTask):
            low, high = self._task.label_range
            return (float(example.label) - low) / (high - low) if example.label is not None else float("nan")
        return self._label_ids[str(example.label)] if example.label is not None else NO_LABEL

    def _tagged(self, examples: list[TaggedExample]) -> Features:
        rows, labels, words = Rows(), [], []
        encoded = self._encoder.words([list(example.tokens) for example in examples])
        for index, (example, (text, numbers)) in enumerate(zip(examples, encoded, strict=True)):
            is_first = [word != before for word, before in zip(numbers, [-1, *numbers], strict=False)]
            first_words = [word if first else -1 for word, first in zip(numbers, is_first, strict=True)]
            tags = example.tags
            known = [self._label_ids[tags[word]] if word >= 0 and tags else NO_LABEL for word in first_words]
            rows.add(index, self._joined(text, None))
            labels += [NO_LABEL, *known, NO_LABEL]
            words += [-1, *first_words, -1]
        return rows.features(np.array(labels, np.int64), first_words=np.array(words, np.int32))

    def _questions(self, examples: list[QuestionExample], is_for_training: bool) -> Features:
        task = self._task
        assert isinstance(task, QuestionAnsweringTask)
        rows, labels = Rows(), []
        offsets: list[npt.NDArray[np.int32]] = [np.zeros((0, 2), np.int32)]
        may_have_none = any(example.answers == () for example in examples)
        questions = self._encoder.texts([example.question for example in examples])
        contexts = self._encoder.contexts([example.context for example in examples])
        for index, (example, question, context) in enumerate(zip(examples, questions, contexts, strict=True)):
            head = [self._special.cls, *question.ids[: task.max_query_tokens], self._special.sep]
            room = self._room_beside(len(head))
            answer = _answer_tokens(example, context.spans)
            for first, last in _windows(len(context.ids), room, task.stride(room)):
                inside = None if answer is None or answer[0] < first or answer[1] >= last else answer
                if is_for_training and inside is None and not may_have_none:
                    continue  # a window without its answer teaches nothing where every question has one
                ids = [*head, *context.ids[first:last].tolist(), self._special.sep]
                rows.add(index, Row(ids, len(head), question.num_tokens > task.max_query_tokens))
                shift = len(head) - first
                labels.append((0, 0) if inside is None else (inside[0] + shift, inside[1] + shift))
                offsets.append(np.pad(context.spans[first:last], ((len(head), 1), (0, 0)), constant_values=-1))
        if is_for_training and not labels:
            raise DataError(
                "max_sequence_length must leave windows that an answer fits into, "
                f"got {self._max_length}, with which none of {len(examples)} training questions has one"
            )
        return rows.features(np.array(labels, np.int64).reshape(-1, 2), offsets=np.concatenate(offsets))

    def _room_beside(self, num_head: int) -> int:
        """Tokens of a text in one window."""
        room = self._max_length - num_head - 1
        if room < 1:
            assert isinstance(self._task, QuestionAnsweringTask)
            raise DataError(
                "max_sequence_length must leave room for a text beside a question of task.max_query_tokens, "
                f"got {self._max_length} and {self._task.max_query_tokens}"
            )
        return room

    def _choices(self, examples: list[ChoiceExample]) -> Features:
        numbers = {len(example.choices) for example in examples}
        if len(numbers) > 1:
            raise DataError(f"all examples must have one number of choices, got {', '.join(map(str, sorted(numbers)))}")
        rows, labels = Rows(), []
        texts = self._encoder.texts([example.text for example in examples])
        choices = self._encoder.texts([choice for example in examples for choice in example.choices])
        for index, (example, text) in enumerate(zip(examples, texts, strict=True)):
            for choice in itertools.islice(choices, len(example.choices)):
                rows.add(index, self._joined(text, choice))
                labels.append(NO_LABEL if example.label is None else example.label)
        return rows.features(np.array(labels, np.int64))

    def _joined(self, first: Text, second: Text | None) -> Row:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], the longer of the two cut."""
        cls, sep = self._special.cls, self._special.sep
        if second is None:
            room = self._max_length - 2
            ids = [cls, *first.ids[:room], sep]
            return Row(ids, len(ids), first.num_tokens > room)
        room = self._max_length - 3
        num_first, num_second = _shares(first.num_tokens, second.num_tokens, room)
        head = [cls, *first.ids[:num_first], sep]
        return Row([*head, *second.ids[:num_second], sep], len(head), first.num_tokens + second.num_tokens > room)


def _of_type(examples: Sequence[Example], kind: type[Any]) -> list[Any]:
    assert all(isinstance(example, kind) for example in examples)
    return list(examples)


def _shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Tokens of two texts that fit into a row: token by token off the longer one, as BERT does, in one go."""
    over = first + second - room
    if over <= 0:
        return first, second
    longer, shorter = max(first, second), min(first, second)
    level = max(shorter, longer - over)
    num_longer = level if level > shorter else (room + 1) // 2
    return (num_longer, room - num_longer) if first >= second else (room - num_longer, num_longer)


def _windows(num_tokens: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """First and last token, plus one, of each window; at least one, and the last ends with the text."""
    start = 0
    while True:
        yield start, min(start + room, num_tokens)
        if start + room >= num_tokens:
            return
        start += stride


def _answer_tokens(example: QuestionExample, spans: npt.NDArray[np.int32]) -> tuple[int, int] | None:
    """First and last token of the first answer in its text; None where there is none."""
    if not example.answers:
        return None
    text, start = example.answers[0]
    (inside,) = np.nonzero((spans[:, 1] > start) & (spans[:, 0] < start + len(text)))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None
