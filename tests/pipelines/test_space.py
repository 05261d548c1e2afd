"""Spaces of a search: what may stand in one, and the points of its grids."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from pipelines.specs.space import Space, check_conditions, counts, grid_points, in_order

SPACE: TypeAdapter[Any] = TypeAdapter(Space)


def space(**dimensions: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = SPACE.validate_python({name.replace("__", "."): one for name, one in dimensions.items()})
    return made


def choice(*values: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "choice", "values": list(values), **fields}


def grid(*values: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "grid", "values": list(values), **fields}


@pytest.mark.parametrize(
    ("dimension", "expected"),
    [
        (choice(1), "at least 2 items"),
        (choice(1, 2, 1), "values must all be different, got 1 more than once"),
        (grid(), "at least 1 item"),
        ({"type": "uniform", "low": 2, "high": 1}, "low must be less than high, got 2 and 1"),
        ({"type": "uniform", "low": 0, "high": "inf"}, "finite number"),
        ({"type": "log_uniform", "low": 0, "high": 1}, "greater than 0"),
        ({"type": "int", "low": 3, "high": 3}, "low must be less than high"),
        ({"type": "int", "low": 1, "high": 8, "step": 2, "log": True}, "step 1 where log is true, got 1 and 2"),
        ({"type": "normal", "mean": 0}, "Input tag 'normal'"),
        (choice(1, 2, weights=[1, 2]), "Extra inputs are not permitted"),
    ],
)
def test_a_dimension_that_cannot_be_is_refused(dimension: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        space(a__b=dimension)


@pytest.mark.parametrize("path", ["seed", "a..b", "a.b.", "A.b", "a.0", "a b.c", ""])
def test_paths_name_a_section_and_a_field(path: str) -> None:
    with pytest.raises(ValidationError, match="must name a section and a field"):
        SPACE.validate_python({path: choice(1, 2)})


def test_true_is_not_one() -> None:
    assert space(a__b=choice(True, 1))["a.b"].values == (True, 1)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"a.c": [1]}, r"a\.b\.when must name paths of the space, got 'a\.c'"),
        ({"x.y": [3]}, r"a\.b\.when must have values that x\.y may have, got 3"),
        ({"x.y": []}, r"a\.b\.when must have values that x\.y may have, got none"),
        ({"x.z": [0.5]}, r"a\.b\.when must name paths with a list of values, got 'x\.z'"),
        ({"a.b": [1]}, r"when must not go round in a circle, got one in a\.b"),
    ],
)
def test_a_condition_must_be_one_that_can_hold(when: dict[str, Any], expected: str) -> None:
    made = space(a__b=grid(1, 2, when=when), x__y=choice(1, 2), x__z={"type": "uniform", "low": 0, "high": 1})
    with pytest.raises(ValueError, match=expected):
        check_conditions(made)


def test_conditions_come_before_what_they_rule() -> None:
    made = space(
        a__b=choice(1, 2, when={"x.y": [1]}), x__y=choice(1, 2, when={"k.l": [True]}), k__l=choice(True, False)
    )
    check_conditions(made)
    assert in_order(made) == ["k.l", "x.y", "a.b"]
    assert counts(made["a.b"], {"x.y": 1})
    assert not counts(made["a.b"], {"x.y": 2})
    assert not counts(made["a.b"], {}), "x.y does not count itself"


def test_a_grid_is_every_combination_that_differs() -> None:
    made = space(a__b=grid(1, 2, 3, when={"x.y": ["on"]}), x__y=grid("on", "off"), c__d=choice(1, 2))
    points = list(grid_points(made))
    assert points == [{"x.y": "on", "a.b": 1}, {"x.y": "on", "a.b": 2}, {"x.y": "on", "a.b": 3}, {"x.y": "off"}]


def test_a_space_without_grids_has_one_empty_point() -> None:
    assert list(grid_points(space(a__b=choice(1, 2)))) == [{}]
