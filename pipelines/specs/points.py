"""Points of a search's space that are looked at before anything is started. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from pipelines.specs.search import SearchSpec
from pipelines.specs.space import (
    ChoiceDimension,
    IntDimension,
    LogUniformDimension,
    Point,
    UniformDimension,
    Value,
    counts,
    grid_points,
    in_order,
)

NUM_SAMPLES = 64
"""Random points beside the ends of the dimensions."""


def points_to_look_at(search: SearchSpec) -> Iterator[dict[str, Value]]:
    """Every point of a grid; of other spaces points with each dimension's ends, then random ones. Some come twice."""
    if search.searcher.type == "grid":
        yield from grid_points(search.space)
        return
    rng = random.Random(search.searcher.seed)
    for path in search.space:
        for end in _ends(search.space[path]):
            yield _filled(search, rng, {path: end})
    for _ in range(NUM_SAMPLES):
        yield _filled(search, rng, {})


def _filled(search: SearchSpec, rng: random.Random, given: Point) -> dict[str, Value]:
    """A random point with some values given, and such others that these count."""
    wanted = dict(given)
    for path in reversed(in_order(search.space)):
        if path in wanted:
            wanted |= {other: values[0] for other, values in search.space[path].when.items() if other not in wanted}
    point: dict[str, Value] = {}
    for path in in_order(search.space):
        if counts(search.space[path], point):
            point[path] = wanted[path] if path in wanted else _drawn(search.space[path], rng)
    return point


def _ends(dimension: Any) -> tuple[Value, ...]:
    match dimension:
        case ChoiceDimension():
            return dimension.values
        case IntDimension(low=low, high=high, step=step):
            return low, low + (high - low) // step * step
        case UniformDimension() | LogUniformDimension():
            return dimension.low, dimension.high
    raise ValueError(f"dimension must be one of a space, got {dimension!r}")


def _drawn(dimension: Any, rng: random.Random) -> Value:
    match dimension:
        case ChoiceDimension():
            return rng.choice(dimension.values)
        case IntDimension(low=low, high=high, log=True):
            return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))
        case IntDimension(low=low, high=high, step=step):
            return rng.randrange(low, high + 1, step)
        case LogUniformDimension(low=low, high=high):
            return math.exp(rng.uniform(math.log(low), math.log(high)))
        case UniformDimension(low=low, high=high):
            return rng.uniform(low, high)
    raise ValueError(f"dimension must be one of a space, got {dimension!r}")
