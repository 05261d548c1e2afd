"""What the paper found of settings that a study tries, where it prints numbers: Clark et al. 2020, arXiv:2003.10555."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.specs.space import Value


@dataclass(frozen=True)
class Published:
    """Numbers by the value of one path."""

    source: str
    values: Mapping[Value, float]


PUBLISHED: Mapping[str, Published] = {
    "objective.name": Published(
        "GLUE, Table 5",
        {"electra": 85.0, "all_tokens_mlm": 84.3, "replace_mlm": 82.4, "electra_15": 82.4, "mlm": 82.2},
    ),
    "model.sharing": Published("GLUE, section 3.2", {"none": 83.6, "embeddings": 84.3, "all": 84.4}),
}
"""By path. Figures 3 and 4 are drawn and not printed: of generator sizes, two stages and adversarial training the paper
gives no numbers to hold against."""


def published(point: Mapping[str, Value]) -> tuple[str, float] | None:
    """Source and number of a setting that differs in one such path alone; None where there is none."""
    found = [(one.source, one.values[point[path]]) for path, one in PUBLISHED.items() if point.get(path) in one.values]
    return found[0] if len(found) == 1 and len(point) == 1 else None
