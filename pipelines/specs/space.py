"""What a search may change: fields of a pretraining spec by their paths, and the values that each may have."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.suggestions import did_you_mean, near

SEARCHABLE = ("model", "objective", "masking", "optimizer", "training")
"""Sections of a pretraining spec that a space may change."""
NOT_SEARCHABLE = {
    "training.num_train_steps": "follows from budget",
    "training.curriculum": "has steps of its own, where a trial's follow from budget",
    "training.log_interval_steps": "changes no weight",
    "training.checkpoint_interval_steps": "changes no weight",
    "training.num_checkpoints_to_keep": "changes no weight",
    "training.max_failures": "changes no weight",
    "training.gradient_accumulation_steps": "changes no weight",
    "training.seed": "is noise: see final.seeds",
}
"""Fields of these that it may not, and why."""
LARGEST = 2**53
"""Of whole numbers: beyond it they are not all numbers of a computer, and samplers have no room for them."""
MOST_COUNTED = 100_000
"""Combinations that are gone through one by one."""


def near_paths(path: str) -> list[str]:
    """Fields that can be searched and that may be meant: of the same name, else of nearly the same."""
    section, _, name = path.rpartition(".")
    places: dict[str, list[str]] = {}
    for one in SEARCHABLE:
        for field in getattr(PretrainSpec.model_fields[one].annotation, "model_fields", ()):
            if f"{one}.{field}" not in NOT_SEARCHABLE:
                places.setdefault(field, []).append(f"{one}.{field}")
    names = [name] if name in places else near(name, places)
    found = [place for one in names for place in places[one]]
    here = [place for place in found if place.startswith(f"{section}.")]
    return here or found


def _names_a_field(path: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", path) is None:
        raise ValueError(
            f"must name a section and a field, as objective.discriminator_weight does, got {path!r}"
            f"{did_you_mean(near_paths(path))}"
        )
    return path


Path = Annotated[str, Field(max_length=200), AfterValidator(_names_a_field)]
"""Of a field of a pretraining spec, such as `objective.discriminator_weight`."""
Value = bool | int | float | str | None


def _number_if_one(value: Any) -> Any:
    """To YAML 1e-4 is a word, as any number with an exponent and no point."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value) else value


GivenValue = Annotated[Value, BeforeValidator(_number_if_one)]
"""As a spec has it."""
WholeNumber = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Condition = Annotated[dict[Path, tuple[GivenValue, ...]], Field(max_length=20)]
"""Another path of the space to its values with which a dimension counts; without these the field stays the base's."""


class _Dimension(FrozenModel):
    """One field that is searched."""

    when: Condition = Field(default_factory=dict)
    """Counts only where other dimensions have one of these values."""


class ChoiceDimension(_Dimension):
    """One of some values, which need no order."""

    type: Literal["choice"]
    values: Annotated[tuple[GivenValue, ...], Field(min_length=2, max_length=1000)]

    @model_validator(mode="after")
    def _values_differ(self) -> Self:
        _check_different(self.values)
        return self


class GridDimension(_Dimension):
    """Every one of some values: with the other grids each combination is a trial."""

    type: Literal["grid"]
    values: Annotated[tuple[GivenValue, ...], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _values_differ(self) -> Self:
        _check_different(self.values)
        return self


class UniformDimension(_Dimension):
    """A number between two others, each as likely."""

    type: Literal["uniform"]
    low: float
    high: float

    @model_validator(mode="after")
    def _has_width(self) -> Self:
        _check_bounds(self.low, self.high)
        return self


class LogUniformDimension(_Dimension):
    """A number between two others, each order of magnitude as likely."""

    type: Literal["log_uniform"]
    low: Annotated[float, Field(gt=0)]
    high: float

    @model_validator(mode="after")
    def _has_width(self) -> Self:
        _check_bounds(self.low, self.high)
        return self


class IntDimension(_Dimension):
    """A whole number between two others, both included."""

    type: Literal["int"]
    low: WholeNumber
    high: WholeNumber
    step: Annotated[int, Field(ge=1)] = 1
    """The numbers are `low`, `low` + `step` and so on."""
    log: bool = False
    """Each order of magnitude as likely; not with a `step`."""

    @model_validator(mode="after")
    def _has_width(self) -> Self:
        _check_bounds(self.low, self.high)
        if self.log and (self.low < 1 or self.step > 1):
            raise ValueError(f"low must be at least 1 and step 1 where log is true, got {self.low} and {self.step}")
        return self


Dimension = Annotated[
    ChoiceDimension | GridDimension | UniformDimension | LogUniformDimension | IntDimension,
    Field(discriminator="type"),
]
Space = Annotated[dict[Path, Dimension], Field(min_length=1, max_length=50)]
Point = Mapping[str, Value]
"""A value for each path whose condition holds."""


def _check_different(values: tuple[Value, ...]) -> None:
    # True equals 1 in Python, and neither in a spec.
    seen = [(type(value), value) for value in values]
    twice = [value for place, value in enumerate(seen) if value in seen[:place]]
    if twice:
        raise ValueError(f"values must all be different, got {twice[0][1]!r} more than once")


def _check_bounds(low: float, high: float) -> None:
    if low >= high:
        raise ValueError(f"low must be less than high, got {low:g} and {high:g}")
    if not math.isfinite(high - low):
        raise ValueError(f"high must be less than 1.8e+308 above low, got {high:g} and {low:g}")


def check_conditions(space: Mapping[str, Any]) -> None:
    """Raise `ValueError` where a condition names what the space does not have, a value that never is, or itself."""
    for path, dimension in space.items():
        for other, wanted in dimension.when.items():
            if other not in space:
                options = did_you_mean(near(other, space))
                raise ValueError(f"{path}.when must name paths of the space, got {other!r}{options}")
            found = getattr(space[other], "values", None)
            if found is None:
                raise ValueError(f"{path}.when must name paths with a list of values, got {other!r}")
            never = [value for value in wanted if value not in found]
            if never or not wanted:
                shown = repr(never[0]) if never else "none"
                raise ValueError(f"{path}.when must have values that {other} may have, got {shown}")
    in_order(space)


def in_order(space: Mapping[str, Any]) -> list[str]:
    """The paths, each behind those that its condition names.

    Raises:
        ValueError: conditions go round in a circle.
    """
    ordered: list[str] = []
    waiting = dict(space)
    while waiting:
        ready = [path for path, dimension in waiting.items() if all(other in ordered for other in dimension.when)]
        if not ready:
            raise ValueError(f"when must not go round in a circle, got one in {', '.join(waiting)}")
        ordered += ready
        for path in ready:
            del waiting[path]
    return ordered


def counts(dimension: Any, point: Point) -> bool:
    """Whether a dimension counts beside the values that others have."""
    return all(other in point and point[other] in wanted for other, wanted in dimension.when.items())


def count_grid_points(space: Mapping[str, Any]) -> int:
    """Combinations of the grids; where there are far too many, how many there would be without conditions."""
    most = math.prod(len(one.values) for one in space.values() if isinstance(one, GridDimension))
    return most if most > MOST_COUNTED else sum(1 for _ in grid_points(space))


def grid_points(space: Mapping[str, Any]) -> Iterator[dict[str, Value]]:
    """Every combination of the grids, those that differ in nothing that counts once."""
    grids = [path for path in in_order(space) if isinstance(space[path], GridDimension)]
    seen: set[tuple[tuple[str, str], ...]] = set()
    for values in itertools.product(*(space[path].values for path in grids)):
        point: dict[str, Value] = {}
        for path, value in zip(grids, values, strict=True):
            if counts(space[path], point):
                point[path] = value
        key = tuple((path, repr(value)) for path, value in point.items())
        if key not in seen:
            seen.add(key)
            yield point
