"""The kept results as Markdown, a table for each machine: python benchmarks/table.py [FILES].

All of benchmarks/results without any. The README shows what this prints.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from common import FIGURES

RESULTS = Path(__file__).parent / "results"


def rows_of(document: dict[str, object]) -> list[str]:
    """One row for each figure with a meaning; results of older benchmarks may hold others."""
    figures, rows = document["figures"], []
    assert isinstance(figures, dict)
    for name, value in figures.items():
        meaning = next((text for known, text in FIGURES.items() if name == known or name.endswith(f"_{known}")), None)
        if meaning is not None:
            rows.append(f"| `{name}` | {value:.3g} | {meaning} | {document['date']} |")
    return rows


def tables(paths: Iterable[Path]) -> str:
    """Markdown: the machine, then its figures."""
    by_machine: dict[object, list[str]] = defaultdict(list)
    for path in paths:
        document = json.loads(path.read_text(encoding="utf-8"))
        by_machine[document["machine"]] += rows_of(document)
    head = "| figure | value | meaning | date |\n|---|---:|---|---|\n"
    return "\n\n".join(f"{machine}:\n\n{head}" + "\n".join(rows) for machine, rows in by_machine.items())


def main() -> None:
    print(tables([Path(name) for name in sys.argv[1:]] or sorted(RESULTS.glob("*.json"))))


if __name__ == "__main__":
    main()
