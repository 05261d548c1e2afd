"""SQuAD's own JSON, versions 1.1 and 2.0."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from pipelines.errors import DataError
from pipelines.tasks.examples import Answer, Example, QuestionExample, Split
from pipelines.tasks.files import BadValueError
from pipelines.tasks.tables import BadRow, is_broken, read_lines

IS_IMPOSSIBLE = "is_impossible"
"""The key by which a question says of itself that its text has no answer."""


def read_squad(uri: str, *, is_for_training: bool, has_labels: bool = True) -> Iterator[QuestionExample | BadRow]:
    """The questions of a file, in order; a malformed one is told by its place, which stands in for a line number.

    Args:
        uri: the file.
        is_for_training: a question whose answers are none of its context's is malformed then. Where it is only scored,
            its answers' texts are all that counts.
        has_labels: a question that says nothing of answers is malformed, unless it says that it is impossible.

    Raises:
        DataError: the file is not in SQuAD's layout.
        StorageError: it cannot be read.
    """
    text = "".join(read_lines(uri))
    try:
        document = json.loads(text) if text.strip() else {"data": []}
    except (ValueError, RecursionError) as error:
        encoding = "UTF-8 and " if is_broken(text) else ""
        raise DataError(f"{uri} must be {encoding}JSON: {str(error)[:300]}") from error
    number = 0
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for question in paragraph["qas"]:
                    number += 1
                    try:
                        asked = _question(number, question, context)
                        found = checked_question(asked, is_for_training=is_for_training, has_labels=has_labels)
                    except BadValueError as error:
                        yield BadRow(uri, number, str(error))
                    else:
                        yield found
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{uri} must have SQuAD's layout (data > paragraphs > context, qas), "
            f"got {type(error).__name__} {error} at question {number + 1}"
        ) from error


def _question(number: int, question: Any, context: Any) -> QuestionExample:
    try:
        identifier, asked = str(question["id"]), _text(question["question"])
        given = question.get("answers")
        answers: tuple[Answer, ...] | None = None
        is_impossible = says_impossible(question)
        if is_impossible:
            answers = ()
        elif given is not None:
            answers = tuple(answer_of(answer["text"], answer["answer_start"]) for answer in given)
        return QuestionExample(identifier, asked, _text(context), answers, is_impossible)
    except BadValueError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadValueError(
            f"question {number} must have an id, a question, a context, and answers of a text and a number "
            f"`answer_start`, got {question!r:.200}"
        ) from error


def says_impossible(question: Mapping[str, Any]) -> bool | None:
    """What a question says of itself under `is_impossible`; None where that is nothing.

    Raises:
        BadValueError: it is neither true nor false.
    """
    value = question.get(IS_IMPOSSIBLE)
    if value is None:
        return None
    if not isinstance(value, int | float) or value not in (0, 1):
        raise BadValueError(f"is_impossible must be true, false, 1 or 0, got {value!r:.100}")
    return bool(value)


def answer_of(text: Any, start: Any) -> Answer:
    """An answer as a file has it.

    Raises:
        TypeError: the text is none, or the place cannot be a number.
        ValueError: the place is no number.
        OverflowError: it is infinite.
    """
    return Answer(_text(text), int(start))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text must be a string, got {type(value).__name__}")
    return value


def checked_question(asked: QuestionExample, *, is_for_training: bool, has_labels: bool) -> QuestionExample:
    """A question that can be asked; for training, with those of its answers that stand in its context.

    Raises:
        BadValueError: what is wrong with it.
    """
    identifier = asked.identifier
    # Bytes that are none come as halves of surrogate pairs, and JSON can escape such a half.
    if any(map(is_broken, (identifier, asked.question, asked.context, *(text for text, _ in asked.answers or ())))):
        raise BadValueError(f"question {identifier!r} must be UTF-8, got bytes that are none or half of a character")
    if not asked.question.strip() or not asked.context.strip():
        raise BadValueError(f"question {identifier!r} must have a question and a context that are not empty")
    if asked.answers is None and has_labels:
        raise BadValueError(f"question {identifier!r} must have answers, an empty list where its text has none")
    if not is_for_training or not asked.answers:
        return asked
    right = tuple(answer for answer in asked.answers if _is_in(answer, asked.context))
    if not right:
        text, start = asked.answers[0]
        raise BadValueError(
            f"the answer to question {identifier!r} must stand at its place in the context, "
            f"got {text[:60]!r} at {start}, where {asked.context[start : start + len(text)][:60]!r} stands"
        )
    return replace(asked, answers=right)


def has_unanswerable(split: Split) -> bool:
    """Whether some questions of a split have no answer."""
    return any(isinstance(one, QuestionExample) and one.answers == () for one in split.examples)


def without_hidden_answers(split: Split, *, may_have_none: bool) -> Split:
    """A split that may lack labels, in which published test sets say that answers are kept back by an empty list.

    Such a list stays an answer, "none", where the question says that it is impossible. Where it says nothing, it stays
    one if the training data have such questions too and others of the split have their answers.

    Args:
        split: of any examples; others than questions stay as they are.
        may_have_none: whether the training data have questions without an answer.
    """
    may_have_none = may_have_none and any(isinstance(one, QuestionExample) and one.answers for one in split.examples)

    def is_hidden(one: Example) -> TypeGuard[QuestionExample]:
        if not isinstance(one, QuestionExample) or one.answers != ():
            return False
        return not (may_have_none if one.is_impossible is None else one.is_impossible)

    return split.with_examples(tuple(replace(one, answers=None) if is_hidden(one) else one for one in split.examples))


def _is_in(answer: Answer, context: str) -> bool:
    return answer.start >= 0 and bool(answer.text) and context.startswith(answer.text, answer.start)
