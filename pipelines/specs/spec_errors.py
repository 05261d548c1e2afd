"""What is wrong with a spec: field by field, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

_SHOWN_VALUE_CHARACTERS = 200


@dataclass(frozen=True)
class FieldProblem:
    """One thing wrong with one field."""

    path: tuple[int | str, ...]
    """Keys and indices from the top, such as ("corpus", "sources", 0, "uris"); empty for the whole document."""
    rule: str
    """What the field must be."""
    value: str | None
    """What was received, shortened; None when it was absent."""

    @property
    def field(self) -> str:
        """The path with dots, such as `training.sequence_length`."""
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        shown = "" if self.value is None else f" (got {self.value})"
        return f"{self.field or 'spec'}: {self.rule}{shown}"


class SpecError(ValueError):
    """The document is not a valid spec; `problems` says why, field by field."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


def problems_of(error: ValidationError) -> list[FieldProblem]:
    """Pydantic's errors as field, rule and value."""
    problems = []
    items = error.errors(include_url=False)
    for item in items:
        if item["type"] == "too_short" and any(_is_inside(other["loc"], item["loc"]) for other in items):
            continue  # pydantic counts only the valid members; the bad ones have problems of their own
        path = _written_path(item["loc"])
        absent = item["type"] == "missing"
        whole = item["type"] == "value_error"  # our own messages carry the values that clash
        rule = item["msg"].removeprefix("Value error, ")
        problems.append(FieldProblem(path, rule, None if absent or whole else shown(item["input"])))
    return problems


def _is_inside(path: tuple[int | str, ...], container: tuple[int | str, ...]) -> bool:
    return len(path) > len(container) and path[: len(container)] == container


def _written_path(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where the user wrote it. Of a union with a `type`, pydantic puts the chosen type into the path."""
    return tuple(part for index, part in enumerate(location) if not _is_added_by_pydantic(location[:index], part))


def _is_added_by_pydantic(before: tuple[int | str, ...], part: int | str) -> bool:
    if part == "[key]":  # how pydantic says that a key of a mapping is wrong, and not its value
        return True
    return any(part in tags and _matches(before, section) for section, tags in _UNIONS)


def _matches(path: tuple[int | str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether a path is one of those that a pattern stands for: `*` is any key or index."""
    return len(path) == len(pattern) and all(key in ("*", part) for part, key in zip(path, pattern, strict=True))


_TASKS = frozenset(
    {"classification", "regression", "token_classification", "question_answering", "multiple_choice", "glue"}
)
_SOURCES = frozenset({"text", "jsonl", "parquet", "python_docs"})
_MODELS = frozenset({"registered", "files"})
_UNIONS: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = (
    (("corpus", "sources", "*"), _SOURCES),
    (("unseen_text", "sources", "*"), _SOURCES),
    (("tokenizer",), frozenset({"wordpiece", "pretrained"})),
    (("initialization",), frozenset({"checkpoint", "transformers", "tensorflow"})),
    (("model",), _MODELS),
    (("discriminator",), _MODELS),
    (("generator",), _MODELS),
    (("task",), _TASKS),
    (("suite",), frozenset({"glue", "tasks"})),
    (("suite", "tasks", "tasks", "*"), _TASKS),  # with the tag of the suite
    (("probe", "tasks", "*"), _TASKS),
    (("space", "*"), frozenset({"choice", "grid", "uniform", "log_uniform", "int"})),
    (("objective",), frozenset({"probe", "minimal_pairs", "fixed_corruption", "training_metric"})),
    (("objective", "probe", "tasks", "*"), _TASKS),
    (("scheduler",), frozenset({"none", "asha", "hyperband", "median_stopping"})),
)
"""Where a union stands, by path as pydantic has it, and its types."""


def shown(value: object) -> str:
    """A value as a message has it, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN_VALUE_CHARACTERS else text[:_SHOWN_VALUE_CHARACTERS] + "…"
