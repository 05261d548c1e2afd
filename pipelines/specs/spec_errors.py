"""What is wrong with a spec: field by field, rule by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from pipelines.specs.fields import Model, place_of, types_of
from pipelines.specs.suggestions import instead_of

MAX_ADVISED = 20
"""Unknown fields for which others are looked for: a document may have thousands."""
_SHOWN_VALUE_CHARACTERS = 200


@dataclass(frozen=True)
class FieldProblem:
    """One thing wrong with one field."""

    path: tuple[int | str, ...]
    """Keys and indices from the top, such as ("corpus", "sources", 0, "uris"); empty for the whole document."""
    rule: str
    """What the field must be; then, behind a semicolon, what the user may do, if that can be told."""
    value: str | None
    """What was received, shortened; None when it was absent."""

    @property
    def field(self) -> str:
        """The path with dots, such as `training.sequence_length`."""
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        shown = "" if self.value is None else f" (got {self.value})"
        rule, semicolon, advice = self.rule.partition("; ")
        return f"{self.field or 'spec'}: {rule}{shown}{semicolon}{advice}"


class SpecError(ValueError):
    """The document is not a valid spec; `problems` says why, field by field."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


def problems_of(error: ValidationError, root: Model, inner: Mapping[str, Model] | None = None) -> list[FieldProblem]:
    """Pydantic's errors as field, rule and value.

    Args:
        error: what pydantic raised.
        root: the model that was asked for.
        inner: sections of it that are documents themselves, and are checked apart.
    """
    items = error.errors(include_url=False)
    missing: dict[tuple[int | str, ...], list[str]] = {}
    for item in items:
        if item["type"] == "missing":
            missing.setdefault(item["loc"][:-1], []).append(str(item["loc"][-1]))
    problems: dict[object, FieldProblem] = {}
    num_unknown = 0
    for number, item in enumerate(items):
        if item["type"] == "too_short" and any(_is_inside(other["loc"], item["loc"]) for other in items):
            continue  # pydantic counts only the valid members; the bad ones have problems of their own
        place = place_of(root, item["loc"])
        rule = _RULES.get(item["type"]) or item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            num_unknown += 1
            if num_unknown <= MAX_ADVISED:
                *above, name = item["loc"]
                rule += instead_of(str(name), place_of(root, above), root, inner, missing.get(tuple(above), ()))
        elif item["type"] == "union_tag_not_found":
            rule += f", one of {', '.join(map(repr, types_of(place.models)))}"
        has_none = item["type"] in ("missing", "value_error")  # our own messages carry the values that clash
        problem = FieldProblem(place.path, rule, None if has_none else shown(item["input"]))
        key = number if has_none else (problem.path, problem.value)
        problems[key] = _joined(problems[key], problem) if key in problems else problem
    return list(problems.values())


_NO_SECTION = "must be a section, a mapping of fields"
_RULES: Mapping[str, str] = {
    "extra_forbidden": "is not a field here",
    "missing": "must be given",
    "model_attributes_type": _NO_SECTION,
    "model_type": _NO_SECTION,
    "tuple_type": "must be a list",
    "union_tag_not_found": "must have a type",
}
"""What pydantic says in its own terms, by the type of the error. All else is said as it says it."""


def _is_inside(path: tuple[int | str, ...], container: tuple[int | str, ...]) -> bool:
    return len(path) > len(container) and path[: len(container)] == container


def _joined(one: FieldProblem, other: FieldProblem) -> FieldProblem:
    """A value that is none of several things is one problem, of which pydantic makes one for each of them."""
    more = "" if one.rule == other.rule else f" or {other.rule.removeprefix('Input should be ')}"
    return replace(one, rule=one.rule + more)


def shown(value: object) -> str:
    """A value as a message has it, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN_VALUE_CHARACTERS else text[:_SHOWN_VALUE_CHARACTERS] + "…"
