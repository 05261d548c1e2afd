"""Spaces by name: the hyperparameters that matter in ELECTRA, and the ranges that are worth a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.specs.spec_errors import FieldProblem, SpecError, shown

# The paper searched λ over 1, 10, 20, 50 and 100 (appendix A).
_LAMBDA = {"objective.discriminator_weight": {"type": "log_uniform", "low": 1.0, "high": 200.0}}
# Generators of a quarter to half of the discriminator's size work best (section 3.2).
_GENERATOR_SIZE = {"model.generator_size_ratio": {"type": "choice", "values": [0.125, 0.25, 0.5, 0.75, 1.0]}}
_LEARNING_RATE = {
    "optimizer.learning_rate": {"type": "log_uniform", "low": 1e-4, "high": 3e-3},
    "optimizer.embedding_learning_rate": {"type": "log_uniform", "low": 3e-4, "high": 3e-2},
}
_MUON_LEARNING_RATE = {"optimizer.muon_learning_rate": {"type": "log_uniform", "low": 1e-4, "high": 1e-2}}

SEARCH_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "lambda": _LAMBDA,
    "generator-size": _GENERATOR_SIZE,
    "lambda-and-generator-size": _LAMBDA | _GENERATOR_SIZE,
    "learning-rates": _LEARNING_RATE,
}
"""Their spaces. `learning-rates` has Muon's too, where the base has it."""


def with_search_preset(document: Mapping[str, Any]) -> dict[str, Any]:
    """A search on top of its preset's space; a dimension of the document's own replaces the preset's.

    Raises:
        SpecError: there is no such preset.
    """
    preset = document.get("preset")
    if preset is None:
        return dict(document)
    if not isinstance(preset, str) or preset not in SEARCH_PRESETS:
        rule = f"must be one of {', '.join(sorted(SEARCH_PRESETS))}"
        raise SpecError([FieldProblem(("preset",), rule, shown(preset))])
    space = dict(SEARCH_PRESETS[preset])
    if preset == "learning-rates" and _has_muon(document.get("base")):
        space |= _MUON_LEARNING_RATE
    own = document.get("space", {})
    return {**document, "space": {**space, **own} if isinstance(own, Mapping) else own}


def _has_muon(base: object) -> bool:
    """Whether the base trains with Muon: it says so, or its preset does."""
    if not isinstance(base, Mapping):
        return False
    optimizer = base.get("optimizer")
    name = optimizer.get("name") if isinstance(optimizer, Mapping) else None
    return name == "muon" or (name is None and base.get("preset") == "tiny")
