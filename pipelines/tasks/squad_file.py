"""SQuAD's own JSON, versions 1.1 and 2.0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipelines.errors import DataError
from pipelines.tasks.examples import Answer, QuestionExample
from pipelines.tasks.tables import BadRow, is_broken, read_text


def read_squad(uri: str, *, is_for_training: bool, has_labels: bool = True) -> Iterator[QuestionExample | BadRow]:
    """The questions of a file, in order; a malformed one is told by its place, which stands in for a line number.

    Args:
        uri: the file.
        is_for_training: a question whose answers are none of its context's is malformed then. Where it is only scored,
            its answers' texts are all that counts.
        has_labels: a question without answers is malformed, unless it says that it is impossible.

    Raises:
        DataError: the file is not in SQuAD's layout.
        StorageError: it cannot be read.
    """
    text = read_text(uri)
    if is_broken(text):
        raise DataError(f"{uri} must be UTF-8")
    try:
        document = json.loads(text) if text.strip() else {"data": []}
    except (ValueError, RecursionError) as error:
        raise DataError(f"{uri} must be JSON: {str(error)[:300]}") from error
    number = 0
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    number += 1
                    yield _question(uri, number, question, paragraph["context"], is_for_training, has_labels)
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{uri} must have SQuAD's layout (data > paragraphs > context, qas), "
            f"got {type(error).__name__} {error} at question {number + 1}"
        ) from error


def _question(
    uri: str, number: int, question: dict[str, Any], context: str, is_for_training: bool, has_labels: bool
) -> QuestionExample | BadRow:
    given = question.get("answers")
    answers = None
    if given is not None or question.get("is_impossible"):
        answers = tuple(Answer(str(answer["text"]), int(answer["answer_start"])) for answer in given or ())
        if question.get("is_impossible"):
            answers = ()
    return checked_question(
        uri,
        number,
        QuestionExample(str(question["id"]), str(question["question"]), str(context), answers),
        is_for_training=is_for_training,
        has_labels=has_labels,
    )


def checked_question(
    uri: str, number: int, asked: QuestionExample, *, is_for_training: bool, has_labels: bool
) -> QuestionExample | BadRow:
    """A question, or what is wrong with it."""
    identifier = asked.identifier
    if not asked.question.strip() or not asked.context.strip():
        return BadRow(uri, number, f"question {identifier!r} must have a question and a context that are not empty")
    if asked.answers is None and has_labels:
        return BadRow(uri, number, f"question {identifier!r} must have answers, an empty list where its text has none")
    if not is_for_training or not asked.answers:
        return asked
    right = tuple(answer for answer in asked.answers if _is_in(answer, asked.context))
    if not right:
        text, start = asked.answers[0]
        return BadRow(
            uri,
            number,
            f"the answer to question {identifier!r} must stand at its place in the context, "
            f"got {text[:60]!r} at {start}, where {asked.context[start : start + len(text)][:60]!r} stands",
        )
    return replace(asked, answers=right)


def _is_in(answer: Answer, context: str) -> bool:
    return answer.start >= 0 and bool(answer.text) and context.startswith(answer.text, answer.start)
