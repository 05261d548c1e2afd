"""Examples as token ids: flat arrays with starts, so that a batch of any rows is cut out by arithmetic.

N rows (windows of a question, choices of a multiple choice, else one an example), T tokens in all.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

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
CHUNK_CHARACTERS = 1_000_000
"""Of the texts that are tokenised at a time: a whole encoding takes nearly a kilobyte a token."""
_Kept = TypeVar("_Kept")


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
    is_cut: npt.NDArray[np.bool_]
    """[N]; whether the end of a text did not fit into the row. Of a window, whether that of its question did not."""
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
    def num_examples(self) -> int:
        """Examples that have a row."""
        return len(np.unique(self.examples))

    @property
    def num_cut(self) -> int:
        """Examples with a row that is cut."""
        return len(np.unique(self.examples[self.is_cut]))

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


class _Text(NamedTuple):
    """What is kept of a text that is cut to a row's length."""

    ids: list[int]
    """As many as a row may have."""
    num_tokens: int
    """Of the whole text."""


class _Words(NamedTuple):
    """What is kept of words with labels."""

    text: _Text
    numbers: list[int]
    """Of the word each token is of; −1 for none."""


class _Context(NamedTuple):
    """What is kept of a text that is read in windows."""

    ids: npt.NDArray[np.int32]
    spans: npt.NDArray[np.int32]
    """[tokens, 2], in characters."""


class _Row(NamedTuple):
    ids: list[int]
    num_first: int
    is_cut: bool


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
        rows = _Rows()
        firsts = self._encoded([example.text for example in examples], self._text)
        pairs = self._encoded([example.text_pair or "" for example in examples], self._text) if task.text_pair else None
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
        rows, labels, words = _Rows(), [], []
        encoded = self._encoded([list(example.tokens) for example in examples], self._words)
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
        rows, labels = _Rows(), []
        offsets: list[npt.NDArray[np.int32]] = [np.zeros((0, 2), np.int32)]
        may_have_none = any(example.answers == () for example in examples)
        questions = self._encoded([example.question for example in examples], self._text)
        contexts = self._encoded([example.context for example in examples], _context)
        for index, (example, question, context) in enumerate(zip(examples, questions, contexts, strict=True)):
            head = [self._special.cls, *question.ids[: task.max_query_tokens], self._special.sep]
            room = self._room_beside(len(head))
            answer = _answer_tokens(example, context.spans)
            for first, last in _windows(len(context.ids), room, task.stride(room)):
                inside = None if answer is None or answer[0] < first or answer[1] >= last else answer
                if is_for_training and inside is None and not may_have_none:
                    continue  # a window without its answer teaches nothing where every question has one
                ids = [*head, *context.ids[first:last].tolist(), self._special.sep]
                rows.add(index, _Row(ids, len(head), question.num_tokens > task.max_query_tokens))
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
        rows, labels = _Rows(), []
        texts = self._encoded([example.text for example in examples], self._text)
        choices = self._encoded([choice for example in examples for choice in example.choices], self._text)
        for index, (example, text) in enumerate(zip(examples, texts, strict=True)):
            for choice in itertools.islice(choices, len(example.choices)):
                rows.add(index, self._joined(text, choice))
                labels.append(NO_LABEL if example.label is None else example.label)
        return rows.features(np.array(labels, np.int64))

    def _encoded(
        self, texts: Sequence[str] | Sequence[list[str]], keep: Callable[[Encoding], _Kept]
    ) -> Iterator[_Kept]:
        """What is kept of each text's encoding, in order. Of whole encodings there is one chunk at a time."""
        is_split = bool(texts) and isinstance(texts[0], list)
        for start, end in _chunks(texts):
            chunk: Any = texts[start:end]
            yield from [
                keep(encoding)
                for encoding in self._tokenizer.encode_batch(chunk, is_pretokenized=is_split, add_special_tokens=False)
            ]

    def _text(self, encoding: Encoding) -> _Text:
        return _Text(encoding.ids[: self._max_length], len(encoding))

    def _words(self, encoding: Encoding) -> _Words:
        numbers = encoding.word_ids[: self._max_length - 2]
        return _Words(self._text(encoding), [-1 if number is None else number for number in numbers])

    def _joined(self, first: _Text, second: _Text | None) -> _Row:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], the longer of the two cut."""
        cls, sep = self._special.cls, self._special.sep
        if second is None:
            room = self._max_length - 2
            ids = [cls, *first.ids[:room], sep]
            return _Row(ids, len(ids), first.num_tokens > room)
        room = self._max_length - 3
        num_first, num_second = _shares(first.num_tokens, second.num_tokens, room)
        head = [cls, *first.ids[:num_first], sep]
        return _Row([*head, *second.ids[:num_second], sep], len(head), first.num_tokens + second.num_tokens > room)


class _Rows:
    """Rows as they come, then arrays."""

    def __init__(self) -> None:
        self._ids: list[npt.NDArray[np.int32]] = []
        self._num_first: list[int] = []
        self._examples: list[int] = []
        self._is_cut: list[bool] = []

    def add(self, example: int, row: _Row) -> None:
        self._ids.append(np.array(row.ids, np.int32))
        self._num_first.append(row.num_first)
        self._examples.append(example)
        self._is_cut.append(row.is_cut)

    def features(self, labels: npt.NDArray[Any], **others: Any) -> Features:
        lengths = np.array([len(ids) for ids in self._ids], np.int64)
        return Features(
            input_ids=np.concatenate(self._ids) if self._ids else np.zeros(0, np.int32),
            starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            num_first=np.array(self._num_first, np.int32),
            examples=np.array(self._examples, np.int32),
            is_cut=np.array(self._is_cut, np.bool_),
            labels=labels,
            **others,
        )


def _of_type(examples: Sequence[Example], kind: type[Any]) -> list[Any]:
    assert all(isinstance(example, kind) for example in examples)
    return list(examples)


def _chunks(texts: Sequence[str] | Sequence[list[str]]) -> Iterator[tuple[int, int]]:
    """First text, and last plus one, of runs of `CHUNK_CHARACTERS` at most, or of one text that is longer."""
    start = size = 0
    for index, text in enumerate(texts):
        length = 1 + (len(text) if isinstance(text, str) else sum(map(len, text)))
        if size and size + length > CHUNK_CHARACTERS:
            yield start, index
            start, size = index, 0
        size += length
    if size:
        yield start, len(texts)


def _context(encoding: Encoding) -> _Context:
    return _Context(np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int32).reshape(-1, 2))


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
