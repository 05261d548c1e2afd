"""From YAML, JSON or a plain mapping to a checked spec, with overrides and readable errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from pipelines.specs.jobs import SPECS, JobSpec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.resolving import merge, resolve_pretraining
from pipelines.specs.search import SearchSpec
from pipelines.specs.search_presets import with_search_preset
from pipelines.specs.spec_errors import FieldProblem, SpecError, problems_of, shown

MAX_SPEC_BYTES = 256 * 1024
"""A spec is words, not data; anything larger is refused before it is parsed."""
_INNER = {"search": {"base": PretrainSpec}}
"""By kind: sections that are specs themselves, and are checked as such."""


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
        raise SpecError([FieldProblem((), "a spec must be a mapping of sections", shown(document))])
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
        raise SpecError([FieldProblem(("kind",), f"must be one of {', '.join(SPECS)}", shown(kind))])
    if kind == "pretrain":
        return resolve_pretraining(merged)
    if kind == "search":
        merged = with_search_preset(merged)
    try:
        spec = SPECS[kind].model_validate(merged)
    except ValidationError as error:
        raise SpecError(problems_of(error, SPECS[kind], _INNER.get(kind))) from error
    if isinstance(spec, SearchSpec):
        from pipelines.specs.trials import check_search  # prices trials: the reckoning is loaded where there are any

        check_search(spec)
    return spec


def load_spec(text: str | bytes, overrides: Sequence[str] = ()) -> JobSpec:
    """Parse and resolve in one go."""
    return resolve_spec(parse_document(text), overrides)


def dump_spec(spec: JobSpec) -> str:
    """Canonical JSON of a resolved spec: what is stored, hashed and recorded."""
    return json.dumps(spec.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


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
        raise SpecError([FieldProblem((), rule, shown(override))])
    try:
        value = yaml.load(text, Loader=_SpecLoader)  # noqa: S506 - as above
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SpecError([FieldProblem(tuple(keys), "the value must be YAML", shown(text))]) from error
    for key in reversed(keys):
        value = {key: value}
    return value  # type: ignore[no-any-return]
