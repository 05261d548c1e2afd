"""A pretraining document on top of its preset and of what its objective changes, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pipelines.specs.objectives import objective_defaults
from pipelines.specs.presets import PRESETS
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.spec_errors import FieldProblem, SpecError, problems_of, shown


def resolve_pretraining(document: Mapping[str, Any]) -> PretrainSpec:
    """Fill in the preset, what the objective changes of it and the defaults, and check.

    Raises:
        SpecError: naming every field that breaks a rule.
    """
    try:
        return PretrainSpec.model_validate(_with_preset(document))
    except ValidationError as error:
        raise SpecError(problems_of(error, PretrainSpec)) from error


def _with_preset(document: Mapping[str, Any]) -> dict[str, Any]:
    """A pretraining spec on top of what its objective and its preset give."""
    merged = merge(objective_defaults(document), document)
    preset = merged.get("preset")
    if preset is None:
        return merged
    if not isinstance(preset, str) or preset not in PRESETS:
        raise SpecError([FieldProblem(("preset",), f"must be one of {', '.join(sorted(PRESETS))}", shown(preset))])
    return merge(_preset_under(merged, preset), merged)


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
