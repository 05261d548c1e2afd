"""From a task's spec to its examples: every split read, checked and reported on."""

from __future__ import annotations

import string
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from pipelines.errors import DataError
from pipelines.specs.labelled import Format, format_of
from pipelines.specs.task import (
    ClassificationTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
    UserTask,
)
from pipelines.tasks import conll
from pipelines.tasks.examples import (
    ChoiceExample,
    Example,
    QuestionExample,
    Split,
    TaggedExample,
    TaskData,
    TextExample,
    content_hash,
    side_hash,
)
from pipelines.tasks.files import (
    BadValueError,
    SplitFiles,
    TaskFiles,
    check_bad_rows,
    label_of,
    labels_of,
    number_of,
    read_split,
    split_of,
    tags_of,
    text_of,
    texts_of,
)
from pipelines.tasks.squad_file import (
    IS_IMPOSSIBLE,
    answer_of,
    checked_question,
    has_unanswerable,
    read_squad,
    says_impossible,
    without_hidden_answers,
)
from pipelines.tasks.tables import Row

_HASHES = 2**64


def read_task(task: UserTask, files: TaskFiles) -> TaskData:
    """All splits of a task.

    Raises:
        DataError: a file is empty or damaged, lacks a column, has too many malformed rows, or holds a label the
            training examples lack.
        StorageError: a file cannot be read.
    """
    limit = task.data.max_bad_row_fraction
    train = _read(task, files.train, is_for_training=True)
    check_bad_rows("data.train", train, limit)
    # Of all training rows: those that are held out or left out below bring no label of their own.
    labels = labels_of_task(task, train)
    pairs_have_order = not (isinstance(task, ClassificationTask | RegressionTask) and task.swap_pairs)
    if files.validation:
        validation = {name: _read(task, split) for name, split in files.validation.items()}
    else:
        train, held_out = _hold_out(train, task.data.validation_fraction, pairs_have_order)
        validation = {"": held_out}
    reading = _Reading(labels, _num_columns(task, files))
    test = {
        name: without_hidden_answers(_read(task, split, reading), may_have_none=has_unanswerable(train))
        for name, split in files.test.items()
    }
    for kind, splits in (("validation", validation), ("test", test)):
        for name, split in splits.items():
            is_whole = kind == "test" and files.test[name].is_whole
            check_bad_rows(f"data.{kind}{name and f' ({name})'}", split, 0.0 if is_whole else limit)
    train = _at_most(train, task.data.max_train_examples)
    splits = {"train": train, **_named("validation", validation), **_named("test", test)}
    for name, split in {**_named("validation", validation), **_named("test", test)}.items():
        _check_identifiers(name, split)
    if isinstance(task, ClassificationTask | TokenClassificationTask):
        _check_labels(labels, splits)
        check_label_names(task, labels)
    return TaskData(train, validation, test, labels, pairs_have_order)


def labels_of_task(task: UserTask, train: Split) -> tuple[str, ...]:
    """Labels in the order of the model's outputs; none where the task has no labels."""
    if not isinstance(task, ClassificationTask | TokenClassificationTask):
        return ()
    return labels_of(train.examples, task.labels)


def _check_identifiers(name: str, split: Split) -> None:
    """Questions are told apart by their ids in scores and in what is handed in. Those to learn from need none."""
    seen: set[str] = set()
    for example in split.examples:
        if isinstance(example, QuestionExample):
            if example.identifier in seen:
                raise DataError(
                    f"every question of {name} must have an id of its own (task.identifier), "
                    f"got {example.identifier!r} twice"
                )
            seen.add(example.identifier)


def overlap(data: TaskData) -> dict[str, tuple[str, ...]]:
    """Identifiers of each other split's examples that ask what a training example asks: scores on them are too good."""

    def asked(example: Example) -> int:
        return content_hash(example, pairs_have_order=data.pairs_have_order)

    seen = set(map(asked, data.train.examples))
    return {
        name: tuple(example.identifier for example in split.examples if asked(example) in seen)
        for name, split in {**_named("validation", data.validation), **_named("test", data.test)}.items()
    }


def _named(kind: str, splits: dict[str, Split]) -> dict[str, Split]:
    return {f"{kind} {name}".strip(): split for name, split in splits.items()}


class _Reading(NamedTuple):
    """What the training data say of how a split that may lack labels is read."""

    labels: tuple[str, ...] = ()
    num_columns: int = 0
    """Of CoNLL; 0 of other files."""


_NOTHING = _Reading()


def _num_columns(task: UserTask, files: TaskFiles) -> int:
    """Of the training files; 0 where nobody asks, or they are not CoNLL."""
    if not isinstance(task, TokenClassificationTask) or not files.test or _kind_of(files.train) != "conll":
        return 0
    return min(map(conll.num_columns, files.train.uris))


def _kind_of(files: SplitFiles) -> Format | None:
    return files.kind or format_of(files.uris[0])


def _read(task: UserTask, files: SplitFiles, reading: _Reading = _NOTHING, is_for_training: bool = False) -> Split:
    match task:
        case ClassificationTask() | RegressionTask():
            columns = {"text": task.text, "label": task.label}
            if task.text_pair is not None:
                columns["text_pair"] = task.text_pair
            return read_split(files, lambda row: _text(task, row, files, reading.labels), columns, frozenset({"label"}))
        case TokenClassificationTask():
            kind = _kind_of(files)
            if kind == "conllu":
                column = task.tags if task.tags != "tags" else "upos"
                return split_of(files, lambda uri: conll.read_conllu(uri, column, has_labels=files.has_labels))
            if kind == "conll":
                tokens, tags = _column_number(task.tokens, "tokens", 0), _column_number(task.tags, "tags", -1)
                layout = conll.Columns(tokens, tags, reading.num_columns)
                return split_of(
                    files,
                    lambda uri: conll.read_conll(uri, layout, has_labels=files.has_labels, known=reading.labels),
                )
            columns = {"tokens": task.tokens, "tags": task.tags}
            return read_split(
                files,
                lambda row: _tagged(task, row, files.has_labels, reading.labels),
                columns,
                frozenset({"tags"}),
            )
        case QuestionAnsweringTask():
            if _kind_of(files) == "squad":
                return split_of(
                    files,
                    lambda uri: read_squad(uri, is_for_training=is_for_training, has_labels=files.has_labels),
                )
            columns = {"question": task.question, "context": task.context, "answers": task.answers}
            return read_split(
                files,
                lambda row: _question(task, row, is_for_training, files.has_labels),
                columns,
                frozenset({"answers"}),
                (task.identifier, IS_IMPOSSIBLE),
            )
        case MultipleChoiceTask():
            columns = {"text": task.text, "label": task.label}
            columns |= {f"choices.{index}": column for index, column in enumerate(task.choices)}
            return read_split(files, lambda row: _choice(task, row, files.has_labels), columns, frozenset({"label"}))


def _identifier(row: Row) -> str:
    return f"{row.uri.rsplit('/', 1)[-1]}:{row.line}"


def _text(
    task: ClassificationTask | RegressionTask, row: Row, files: SplitFiles, known: tuple[str, ...]
) -> TextExample:
    label: str | float | None
    if isinstance(task, RegressionTask):
        label = number_of(row, task.label, task.label_range, is_needed=files.has_labels)
    else:
        label = label_of(row, task.label, is_needed=files.has_labels, known=known)
    pair = None if task.text_pair is None else text_of(row, task.text_pair, may_be_empty=files.is_whole)
    return TextExample(_identifier(row), text_of(row, task.text, may_be_empty=files.is_whole), pair, label)


def _tagged(task: TokenClassificationTask, row: Row, is_needed: bool, known: tuple[str, ...]) -> TaggedExample:
    tokens = texts_of(row, task.tokens)
    tags = tags_of(row, task.tags, is_needed=is_needed, known=known)
    if not tokens:
        raise BadValueError(f"column {task.tokens!r} must hold words, got an empty list")
    if tags is not None and len(tags) != len(tokens):
        raise BadValueError(f"column {task.tags!r} must have a label for each of {len(tokens)} words, got {len(tags)}")
    return TaggedExample(_identifier(row), tokens, tags)


def _question(task: QuestionAnsweringTask, row: Row, is_for_training: bool, has_labels: bool) -> QuestionExample:
    given: Any = row.values.get(task.answers)
    answers = None
    if given is not None:
        try:
            if isinstance(given, list):  # of objects, as SQuAD's own JSON has them
                answers = tuple(answer_of(one["text"], one["answer_start"]) for one in given)
            else:
                answers = tuple(
                    answer_of(text, start) for text, start in zip(given["text"], given["answer_start"], strict=True)
                )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadValueError(
                f"column {task.answers!r} must hold lists `text` and `answer_start` of one length, got {given!r:.100}"
            ) from error
    identifier = row.values.get(task.identifier)
    question, context = text_of(row, task.question), text_of(row, task.context)
    name = f"{row.uri}:{row.line}" if identifier is None else str(identifier)
    asked = QuestionExample(name, question, context, answers, says_impossible(row.values))
    return checked_question(asked, is_for_training=is_for_training, has_labels=has_labels)


def _choice(task: MultipleChoiceTask, row: Row, is_needed: bool) -> ChoiceExample:
    if len(task.choices) > 1:
        choices = tuple(text_of(row, column) for column in task.choices)
    else:
        choices = texts_of(row, task.choices[0])
    if len(choices) < 2:
        raise BadValueError(f"there must be at least two choices, got {len(choices)}")
    value = row.values.get(task.label)
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    label = label_of(row, task.label, is_needed=is_needed, known=() if is_number else choices)
    if label is None:
        return ChoiceExample(_identifier(row), text_of(row, task.text), choices)
    numbers = _choice_numbers(label, choices, is_number=is_number)
    if len(numbers) != 1:
        found = f", which may be {' or '.join(map(str, numbers))}" if numbers else ""
        raise BadValueError(
            f"column {task.label!r} must be the number, letter or text of one of {len(choices)} choices, "
            f"got {label!r:.60}{found}"
        )
    return ChoiceExample(_identifier(row), text_of(row, task.text), choices, numbers[0])


def _choice_numbers(label: str, choices: tuple[str, ...], *, is_number: bool) -> list[int]:
    """All choices that a label may mean; a number of JSON or Parquet means nothing but the number of one."""
    found = []
    for index, choice in enumerate(choices):
        letter = string.ascii_uppercase[index : index + 1]
        names = {str(index)} if is_number else {str(index), letter, letter.lower(), choice.strip()}
        if label in names:
            found.append(index)
    return found


def _column_number(written: str, name: str, default: int) -> int:
    if written == name:
        return default
    if not written.isdecimal() or written == "0":
        raise DataError(f"task.{name} must be the number of a column from 1 where the files are CoNLL, got {written!r}")
    return int(written) - 1


def _hold_out(split: Split, fraction: float, pairs_have_order: bool) -> tuple[Split, Split]:
    """Training and validation examples, told apart by hash: what `side_hash` takes together stays together."""
    threshold = int(fraction * _HASHES)
    kept: list[Example] = []
    held_out: list[Example] = []
    for example in split.examples:
        is_held_out = side_hash(example, pairs_have_order=pairs_have_order) < threshold
        (held_out if is_held_out else kept).append(example)
    if not kept or not held_out:
        raise DataError(
            f"data.validation_fraction must leave both sides an example, got {fraction:g} of {len(split.examples)}; "
            "name files under data.validation"
        )
    # The file's malformed rows are counted once.
    return split.with_examples(tuple(kept)), Split(tuple(held_out), len(held_out))


def _at_most(split: Split, number: int | None) -> Split:
    if number is None or number >= len(split.examples):
        return split
    ranked = sorted(range(len(split.examples)), key=lambda index: (content_hash(split.examples[index]), index))
    return split.with_examples(tuple(split.examples[index] for index in sorted(ranked[:number])))


def _check_labels(labels: tuple[str, ...], splits: dict[str, Split]) -> None:
    known = set(labels)
    for name, split in splits.items():
        for example in split.examples:
            for label in _labels_in(example):
                if label not in known:
                    shown = ", ".join(f"{one!r:.60}" for one in labels[:20]) + (" …" if len(labels) > 20 else "")
                    raise DataError(
                        f"every label of {name} must be one of {shown}, got {label!r:.100} at {example.identifier}; "
                        "if it is right, list all labels under task.labels"
                    )


def _labels_in(example: Example) -> Iterator[str]:
    if isinstance(example, TaggedExample):
        yield from example.tags or ()
    elif isinstance(example, TextExample) and isinstance(example.label, str):
        yield example.label


def check_label_names(task: ClassificationTask | TokenClassificationTask, labels: tuple[str, ...]) -> None:
    """Raise `DataError` where what a spec says of labels does not fit those of the data."""
    if isinstance(task, ClassificationTask) and task.metric == "f1" and len(labels) != 2:
        raise DataError(f"task.metric must be macro_f1 where there are not two labels, got 'f1' and {len(labels)}")
    if isinstance(task.class_weights, dict):
        unknown = sorted(task.class_weights.keys() - set(labels))
        if unknown:
            raise DataError(f"task.class_weights must name labels of the data, got {', '.join(map(repr, unknown))}")
    if isinstance(task, TokenClassificationTask) and task.scheme != "none":
        prefixes = ("B", "I", "O") if task.scheme == "BIO" else ("B", "I", "O", "E", "S")
        for label in labels:
            if label != "O" and (label[:1] not in prefixes or label[1:2] != "-"):
                raise DataError(
                    f"labels must be O or begin with {'-, '.join(prefixes)}- in {task.scheme}, got {label!r}"
                )
