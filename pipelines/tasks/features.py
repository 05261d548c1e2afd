"""Examples as token ids: flat arrays with starts, so that a batch of any rows is cut out by arithmetic.

N rows (windows of a question, choices of a multiple choice, else one an example), T tokens in all.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from pipelines import storage
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
from pipelines.tasks.examples import ChoiceExample, Example, QuestionExample, TaggedExample, TextExample

NO_LABEL = -100
"""Of a token without a label, and of a row whose label is not known; the loss's own number."""
_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Features:
    """The rows of a split."""

    input_ids: npt.NDArray[np.int32]
    """[T]; [CLS] first, [SEP] last, and between two texts."""
    starts: npt.NDArray[np.int64]
    """[N + 1]; where each row begins, and the end."""
    num_first: npt.NDArray[np.int32]
    """[N]; tokens of type 0, the first [SEP] included."""
    examples: npt.NDArray[np.int32]
    """[N]; the example each row belongs to."""
    labels: npt.NDArray[Any]
    """int64[N] of classes or choices (of a choice's example in each of its rows), float32[N] of numbers from 0 to 1
    (NaN without one), int64[T] of tokens, int64[N, 2] of an answer's first and last token in its row (0 without)."""
    offsets: npt.NDArray[np.int32] | None = None
    """[T, 2] of questions: where each token of the context stands in it, in characters; −1 for all other tokens."""
    first_words: npt.NDArray[np.int32] | None = None
    """[T] of tokens with labels: the number of the word each first piece stands for; −1 elsewhere."""

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.examples)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """int64[N], in tokens."""
        return np.diff(self.starts)

    def write(self, uri: str) -> None:
        """Write the arrays as one `.npz`."""
        buffer = io.BytesIO()
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        np.savez(buffer, **arrays)
        storage.write_bytes(uri, buffer.getvalue())

    @classmethod
    def read(cls, uri: str) -> Features:
        """What `write` wrote."""
        with np.load(io.BytesIO(storage.read_bytes(uri)), allow_pickle=False) as arrays:
            return cls(**{name: arrays[name] for name in arrays.files})


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
        self._tokenizer = tokenizer
        self._special = special
        self._label_ids = {label: index for index, label in enumerate(labels)}
        self._max_length = max_length

    def make(self, examples: Sequence[Example], *, is_for_training: bool = False) -> Features:
        """The rows of a split; pairs both ways round for training, where the task asks for it.

        Raises:
            DataError: a multiple choice whose examples have unlike numbers of choices, or windows that are too short.
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
        rows = _Rows()
        firsts = self._encoded([example.text for example in examples])
        pairs = self._encoded([example.text_pair or "" for example in examples]) if task.text_pair else None
        labels: list[float] = []
        for index, first in enumerate(firsts):
            label = self._label_of(examples[index])
            pair = None if pairs is None else next(pairs).ids
            rows.add(index, *self._joined(first.ids, pair))
            labels.append(label)
            if is_for_training and task.swap_pairs and pair is not None:
                rows.add(index, *self._joined(pair, first.ids))
                labels.append(label)
        is_number = isinstance(task, RegressionTask)
        return rows.features(np.array(labels, np.float32 if is_number else np.int64))

    def _label_of(self, example: TextExample) -> float:
        if isinstance(self._task, RegressionTask):
            low, high = self._task.label_range
            return (float(example.label) - low) / (high - low) if example.label is not None else float("nan")
        return self._label_ids[str(example.label)] if example.label is not None else NO_LABEL

    def _tagged(self, examples: list[TaggedExample]) -> Features:
        rows, labels, words = _Rows(), [], []
        encoded = self._encoded([list(example.tokens) for example in examples])
        for index, (example, encoding) in enumerate(zip(examples, encoded, strict=True)):
            room = self._max_length - 2
            ids = encoding.ids[:room]
            word_ids = [-1 if word is None else word for word in encoding.word_ids[:room]]
            is_first = [word != before for word, before in zip(word_ids, [-1, *word_ids], strict=False)]
            first_words = [word if first else -1 for word, first in zip(word_ids, is_first, strict=True)]
            tags = example.tags
            known = [self._label_ids[tags[word]] if word >= 0 and tags else NO_LABEL for word in first_words]
            rows.add(index, *self._joined(ids, None))
            labels += [NO_LABEL, *known, NO_LABEL]
            words += [-1, *first_words, -1]
        return rows.features(np.array(labels, np.int64), first_words=np.array(words, np.int32))

    def _questions(self, examples: list[QuestionExample], is_for_training: bool) -> Features:
        task = self._task
        assert isinstance(task, QuestionAnsweringTask)
        rows, labels = _Rows(), []
        offsets: list[npt.NDArray[np.int32]] = [np.zeros((0, 2), np.int32)]
        may_have_none = any(example.answers == () for example in examples)
        questions = self._encoded([example.question for example in examples])
        contexts = self._encoded([example.context for example in examples])
        for index, (example, question, context) in enumerate(zip(examples, questions, contexts, strict=True)):
            asked = question.ids[: task.max_query_tokens]
            room = self._max_length - len(asked) - 3
            if room < 1:
                raise DataError(
                    "max_sequence_length must leave room for a text beside a question of task.max_query_tokens, "
                    f"got {self._max_length} and {task.max_query_tokens}"
                )
            spans = np.array(context.offsets, np.int32).reshape(-1, 2)
            for first, last in _windows(len(spans), room, task.document_stride):
                span = _answer_tokens(example, spans, first, last)
                if is_for_training and span is None and not may_have_none:
                    continue  # a window without its answer teaches nothing where every question has one
                ids, num_first = self._joined(asked, context.ids[first:last])
                rows.add(index, ids, num_first)
                start, end = (0, 0) if span is None else (span[0] + num_first, span[1] + num_first)
                labels.append((start, end))
                offsets.append(np.pad(spans[first:last], ((num_first, 1), (0, 0)), constant_values=-1))
        return rows.features(np.array(labels, np.int64).reshape(-1, 2), offsets=np.concatenate(offsets))

    def _choices(self, examples: list[ChoiceExample]) -> Features:
        numbers = {len(example.choices) for example in examples}
        if len(numbers) > 1:
            raise DataError(f"all examples must have one number of choices, got {', '.join(map(str, sorted(numbers)))}")
        rows, labels = _Rows(), []
        texts = self._encoded([example.text for example in examples])
        choices = self._encoded([choice for example in examples for choice in example.choices])
        for index, (example, text) in enumerate(zip(examples, texts, strict=True)):
            for choice in itertools.islice(choices, len(example.choices)):
                rows.add(index, *self._joined(text.ids, choice.ids))
                labels.append(NO_LABEL if example.label is None else example.label)
        return rows.features(np.array(labels, np.int64))

    def _encoded(self, texts: Sequence[str] | Sequence[list[str]]) -> Iterator[Encoding]:
        is_split = bool(texts) and isinstance(texts[0], list)
        for start in range(0, len(texts), _CHUNK):
            chunk: Any = list(texts[start : start + _CHUNK])
            yield from self._tokenizer.encode_batch(chunk, is_pretokenized=is_split, add_special_tokens=False)

    def _joined(self, first: list[int], second: list[int] | None) -> tuple[list[int], int]:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], the longer of the two cut; and the tokens of type 0."""
        cls, sep = self._special.cls, self._special.sep
        if second is None:
            ids = [cls, *first[: self._max_length - 2], sep]
            return ids, len(ids)
        room = self._max_length - 3
        over = len(first) + len(second) - room
        if over > 0:
            # Token by token off the longer one, as BERT does, in one go.
            longer, shorter = max(len(first), len(second)), min(len(first), len(second))
            level = max(shorter, longer - over)
            rest = longer + shorter - over
            num_longer = level if level > shorter else (rest + 1) // 2
            num_shorter = rest - num_longer
            is_first_longer = len(first) >= len(second)
            first = first[: num_longer if is_first_longer else num_shorter]
            second = second[: num_shorter if is_first_longer else num_longer]
        head = [cls, *first, sep]
        return [*head, *second, sep], len(head)


class _Rows:
    """Rows as they come, then arrays."""

    def __init__(self) -> None:
        self._ids: list[npt.NDArray[np.int32]] = []
        self._num_first: list[int] = []
        self._examples: list[int] = []

    def add(self, example: int, ids: list[int], num_first: int) -> None:
        self._ids.append(np.array(ids, np.int32))
        self._num_first.append(num_first)
        self._examples.append(example)

    def features(self, labels: npt.NDArray[Any], **others: Any) -> Features:
        lengths = np.array([len(ids) for ids in self._ids], np.int64)
        return Features(
            input_ids=np.concatenate(self._ids) if self._ids else np.zeros(0, np.int32),
            starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            num_first=np.array(self._num_first, np.int32),
            examples=np.array(self._examples, np.int32),
            labels=labels,
            **others,
        )


def _of_type(examples: Sequence[Example], kind: type[Any]) -> list[Any]:
    assert all(isinstance(example, kind) for example in examples)
    return list(examples)


def _windows(num_tokens: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """First and last token, plus one, of each window; at least one, and the last ends with the text."""
    start = 0
    while True:
        yield start, min(start + room, num_tokens)
        if start + room >= num_tokens:
            return
        start += min(room, stride)


def _answer_tokens(
    example: QuestionExample, spans: npt.NDArray[np.int32], first: int, last: int
) -> tuple[int, int] | None:
    """First and last token of the first answer, counted from the window's start; None if it is not all inside."""
    if not example.answers:
        return None
    text, start = example.answers[0]
    (inside,) = np.nonzero((spans[:, 1] > start) & (spans[:, 0] < start + len(text)))
    if not len(inside) or inside[0] < first or inside[-1] >= last:
        return None
    return int(inside[0]) - first, int(inside[-1]) - first
