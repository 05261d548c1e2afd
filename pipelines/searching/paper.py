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

CURVE_SOURCE = "GLUE, Table 1"
CURVE: tuple[tuple[str, float, float], ...] = (
    ("ELECTRA-Small, 6.25 % trained", 8.9e16, 74.1),
    ("ELECTRA-Small, 12.5 % trained", 1.8e17, 76.0),
    ("ELECTRA-Small, 25 % trained", 3.6e17, 77.7),
    ("ELECTRA-Small, 50 % trained", 7.1e17, 79.0),
    ("ELECTRA-Small", 1.4e18, 79.9),
    ("BERT-Small", 1.4e18, 75.1),
    ("ELECTRA-Base", 6.4e19, 85.1),
    ("BERT-Base", 6.4e19, 82.2),
)
"""Quality against FLOPs of pretraining, of replaced-token detection and masked LM: model, FLOPs, mean of GLUE's
development sets."""
CURVE_NAMES = frozenset({"electra", "mlm"})
"""Values of objective.name that the curve is of."""


def published(point: Mapping[str, Value]) -> tuple[str, float] | None:
    """Source and number of a setting that differs in one such path alone; None where there is none."""
    found = [(one.source, one.values[point[path]]) for path, one in PUBLISHED.items() if point.get(path) in one.values]
    return found[0] if len(found) == 1 and len(point) == 1 else None
