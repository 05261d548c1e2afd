"""From YAML, JSON or a plain mapping to a checked spec, with overrides and readable errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from pipelines.specs.jobs import SPECS, JobSpec
from pipelines.specs.objectives import objective_defaults
from pipelines.specs.presets import PRESETS

MAX_SPEC_BYTES = 256 * 1024
"""A spec is words, not data; anything larger is refused before it is parsed."""
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


def parse_document(text: str | bytes) -> dict[str, Any]:
    """Read one YAML or JSON mapping.

    Raises:
        SpecError: too large, not UTF-8, not YAML, or not a mapping.
    """
    if len(text) > MAX_SPEC_BYTES:
        raise SpecError([FieldProblem((), f"a spec must be at most {MAX_SPEC_BYTES} bytes", str(len(text)))])
    try:
        document = yaml.load(text, Loader=_SpecLoader)  # noqa: S506 - a SafeLoader that also refuses aliases
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        rule = "a spec must be YAML or JSON: " + " ".join(str(error).split())
        raise SpecError([FieldProblem((), rule, None)]) from error
    if not isinstance(document, dict):
        raise SpecError([FieldProblem((), "a spec must be a mapping of sections", _shown(document))])
    return document


def resolve_spec(document: Mapping[str, Any], overrides: Sequence[str] = ()) -> JobSpec:
    """Fill in the preset, what the objective changes of it and the defaults, apply `path=value` overrides, and check.

    Raises:
        SpecError: naming every field that breaks a rule.
    """
    merged: dict[str, Any] = dict(document)
    for override in overrides:
        merged = merge(merged, _override_document(override))
    kind = merged.get("kind", "pretrain")
    if not isinstance(kind, str) or kind not in SPECS:
        raise SpecError([FieldProblem(("kind",), f"must be one of {', '.join(SPECS)}", _shown(kind))])
    if kind == "pretrain":
        merged = _with_preset(merged)
    try:
        return SPECS[kind].model_validate(merged)
    except ValidationError as error:
        raise SpecError(problems_of(error)) from error


def _with_preset(document: Mapping[str, Any]) -> dict[str, Any]:
    """A pretraining spec on top of what its objective and its preset give."""
    merged = merge(objective_defaults(document), document)
    preset = merged.get("preset")
    if preset is None:
        return merged
    if not isinstance(preset, str) or preset not in PRESETS:
        raise SpecError([FieldProblem(("preset",), f"must be one of {', '.join(sorted(PRESETS))}", _shown(preset))])
    return merge(_preset_under(merged, preset), merged)


def load_spec(text: str | bytes, overrides: Sequence[str] = ()) -> JobSpec:
    """Parse and resolve in one go."""
    return resolve_spec(parse_document(text), overrides)


def dump_spec(spec: JobSpec) -> str:
    """Canonical JSON of a resolved spec: what is stored, hashed and recorded."""
    return json.dumps(spec.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


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
        problems.append(FieldProblem(path, rule, None if absent or whole else _shown(item["input"])))
    return problems


def _is_inside(path: tuple[int | str, ...], container: tuple[int | str, ...]) -> bool:
    return len(path) > len(container) and path[: len(container)] == container


def _written_path(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where the user wrote it. Of a union with a `type`, pydantic puts the chosen type into the path."""
    return tuple(part for index, part in enumerate(location) if not _is_added_by_pydantic(location[:index], part))


def _is_added_by_pydantic(before: tuple[int | str, ...], part: int | str) -> bool:
    if part == "[key]":  # how pydantic says that a key of a mapping is wrong, and not its value
        return True
    if part not in _UNION_TAGS or not before:
        return False
    # A member of a list, a section that is a union itself, or a task of a suite, which has a name of its own.
    is_task_of_suite = len(before) == 4 and before[:3] == ("suite", "tasks", "tasks")
    is_task_of_probe = len(before) == 3 and before[:2] == ("probe", "tasks")
    is_source_of_text = len(before) == 3 and before[:2] == ("unseen_text", "sources")
    is_model = before in _MODEL_SECTIONS and part in ("registered", "files")
    return (
        isinstance(before[-1], int)
        or before[-1:] in _UNION_SECTIONS
        or is_task_of_suite
        or is_task_of_probe
        or is_source_of_text
        or is_model
    )


_MODEL_SECTIONS = frozenset({("model",), ("discriminator",), ("generator",)})
_UNION_SECTIONS = frozenset({("tokenizer",), ("initialization",), ("task",), ("suite",)})
_UNION_TAGS = frozenset(
    {
        *("text", "jsonl", "parquet", "python_docs", "wordpiece", "pretrained"),
        *("checkpoint", "transformers", "tensorflow", "registered", "files"),
        *("classification", "regression", "token_classification", "question_answering", "multiple_choice"),
        *("glue", "tasks"),
    }
)


class _SpecLoader(yaml.SafeLoader):
    """SafeLoader without aliases: a spec has no use for them, and nested ones grow without bound."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed in a spec")
        return super().compose_node(parent, index)


def _override_document(override: str) -> dict[str, Any]:
    path, separator, text = override.partition("=")
    keys = path.strip().split(".")
    if not separator or not all(keys):
        rule = "an override must look like section.field=value"
        raise SpecError([FieldProblem((), rule, _shown(override))])
    try:
        value = yaml.load(text, Loader=_SpecLoader)  # noqa: S506 - as above
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SpecError([FieldProblem(tuple(keys), "the value must be YAML", _shown(text))]) from error
    for key in reversed(keys):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def _preset_under(document: Mapping[str, Any], preset: str) -> dict[str, Any]:
    """A preset's values, without what is its optimizer's alone where the document names another optimizer."""
    values = PRESETS[preset]().model_dump(mode="json")
    section = document.get("optimizer")
    if isinstance(section, Mapping) and section.get("name", values["optimizer"]["name"]) != values["optimizer"]["name"]:
        del values["optimizer"]["muon_learning_rate"]
    return values


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, mapping by mapping. A mapping of another `type` replaces the base's whole."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and not _changes_type(below, value):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def _changes_type(base: Mapping[str, Any], over: Mapping[str, Any]) -> bool:
    return "type" in over and over["type"] != base.get("type")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_VALUE_CHARACTERS else text[:_SHOWN_VALUE_CHARACTERS] + "…"
