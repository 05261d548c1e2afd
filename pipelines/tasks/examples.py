"""Labelled examples, as their files give them and before any tokenizer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair, with a label."""

    identifier: str
    text: str
    text_pair: str | None = None
    label: str | float | None = None
    """Name of a class, or a number; None where the file has none."""


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """Words with a label each."""

    identifier: str
    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None = None


class Answer(NamedTuple):
    """A span of a context."""

    text: str
    start: int
    """In characters."""


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a text."""

    identifier: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None = None
    """Any of them is right; empty where the text has no answer, None where the file does not say."""
    is_impossible: bool | None = None
    """What the file says in so many words of whether the text has no answer; None where it is silent."""


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """Several texts of which one goes with another text."""

    identifier: str
    text: str
    choices: tuple[str, ...]
    label: int | None = None


Example = TextExample | TaggedExample | QuestionExample | ChoiceExample


@dataclass(frozen=True, slots=True)
class Split:
    """The examples of a split, and what was wrong with its rows."""

    examples: tuple[Example, ...]
    num_rows: int
    num_bad_rows: int = 0
    report: tuple[str, ...] = ()
    """The first malformed rows, by file and line; see `MAX_REPORTED_ROWS`."""

    def with_examples(self, examples: tuple[Example, ...]) -> Split:
        """Other examples of the same files."""
        return replace(self, examples=examples)


@dataclass(frozen=True, slots=True)
class TaskData:
    """All splits of a task."""

    train: Split
    validation: dict[str, Split]
    """By the name that sets of several have, such as `mismatched`; a single one has none. Seeds are compared on the
    first."""
    test: dict[str, Split]
    labels: tuple[str, ...] = ()
    """Of a classification, in the order of the model's outputs."""
    pairs_have_order: bool = True
    """Whether a pair asks something else than the same texts the other way round."""


def content_hash(example: Example, *, pairs_have_order: bool = True) -> int:
    """64 bits of what an example asks, whatever its label and its identifier."""
    asked: tuple[Any, ...]
    match example:
        case TextExample():
            asked = (example.text, example.text_pair)
            if example.text_pair is not None and not pairs_have_order:
                asked = tuple(sorted((example.text, example.text_pair)))
        case TaggedExample():
            asked = example.tokens
        case QuestionExample():
            asked = (example.question, example.context)
        case ChoiceExample():
            asked = (example.text, *example.choices)
    return _hash(asked)


def side_hash(example: Example, *, pairs_have_order: bool = True) -> int:
    """64 bits that examples share which must not be torn apart, one to train on and one to be scored on: those that ask
    the same, and all questions about one text.
    """
    if isinstance(example, QuestionExample):
        return _hash((example.context,))
    return content_hash(example, pairs_have_order=pairs_have_order)


def _hash(asked: tuple[Any, ...]) -> int:
    return int.from_bytes(hashlib.blake2b(repr(asked).encode("utf-8", "replace"), digest_size=8).digest())
