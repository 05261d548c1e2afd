"""Search specs: as text, to be broken in one section, and resolved; and values of their points."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.specs.parsing import load_spec, resolve_spec
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point
from pipelines.specs.spec_errors import SpecError

SECTIONS = {
    "base": "{preset: tiny}",
    "space": "{objective.discriminator_weight: {type: log_uniform, low: 1, high: 100}}",
    "objective": "{type: fixed_corruption}",
    "budget": "{flops: 1e+12}",
}


def refused(**sections: str) -> str:
    """The whole sentence."""
    with pytest.raises(SpecError) as caught:
        load_spec(text(**sections))
    return str(caught.value)


def text(**sections: str) -> str:
    """A good search with some sections of another text; those without any are left out."""
    given = {**SECTIONS, **sections}
    return "kind: search\n" + "".join(f"{name}: {value}\n" for name, value in given.items() if value)


def search(**fields: Any) -> SearchSpec:
    given = {"kind": "search", "base": {"preset": "tiny"}, "objective": {"type": "fixed_corruption"}}
    spec = resolve_spec({**given, "budget": {"flops": 1e12}, **fields})
    assert isinstance(spec, SearchSpec)
    return spec


def number(point: Point, path: str) -> float:
    value = point[path]
    assert isinstance(value, int | float)
    return float(value)
