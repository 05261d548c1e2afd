"""What is left of a space of few points, for samplers that propose what they believe in again and again."""

from __future__ import annotations

import random

from pipelines.specs.space import ChoiceDimension, IntDimension, Point, Space, Value, counts, in_order

MOST_LISTED = 20_000
"""Points that are gone through one by one: twice as many as a search can try, so that in larger spaces every second
random point is new."""


class Untried:
    """The points of a space that were not asked for yet, in random order.

    Args:
        space: of the search.
        seed: of the order.
    """

    def __init__(self, space: Space, seed: int) -> None:
        points = list_points(space)
        self.is_listed = points is not None
        """Whether the space has so few points that all of them can be gone through."""
        self._left = points or []
        random.Random(seed).shuffle(self._left)
        self._tried: set[str] = set()

    def note(self, point: Point) -> None:
        """The point was asked for."""
        self._tried.add(_key(point))

    def draw(self) -> dict[str, Value] | None:
        """Any point that is left; None where there is none."""
        while self._left:
            point = self._left.pop()
            if _key(point) not in self._tried:
                return point
        return None


def list_points(space: Space) -> list[dict[str, Value]] | None:
    """All points, those that differ in nothing that counts once; None where there are more than `MOST_LISTED`, or
    dimensions that are not choices or whole numbers.
    """
    points: list[dict[str, Value]] = [{}]
    for path in in_order(space):
        dimension = space[path]
        values = _values(dimension)
        if values is None or sum(len(values) if counts(dimension, one) else 1 for one in points) > MOST_LISTED:
            return None
        points = [
            made
            for one in points
            for made in ([one | {path: value} for value in values] if counts(dimension, one) else [one])
        ]
    return points


def _values(dimension: object) -> tuple[Value, ...] | range | None:
    match dimension:
        case ChoiceDimension(values=values):
            return values
        case IntDimension(low=low, high=high, step=step):
            return range(low, high + 1, step)
        case _:
            return None


def _key(point: Point) -> str:
    return repr(sorted(point.items()))
