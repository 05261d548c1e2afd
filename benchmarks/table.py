"""The kept results as a Markdown table: python benchmarks/table.py [FILES], all of benchmarks/results without any."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from common import FIGURES


def rows_of(path: Path) -> list[str]:
    """One row for each figure with a meaning; results of older benchmarks may hold others."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for name, value in document["figures"].items():
        meaning = next((text for known, text in FIGURES.items() if name == known or name.endswith(f"_{known}")), None)
        if meaning is not None:
            rows.append(f"| `{name}` | {value:.3g} | {meaning} | {document['machine']} | {document['date']} |")
    return rows


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted((Path(__file__).parent / "results").glob("*.json"))
    print("| figure | value | meaning | machine | date |\n|---|---:|---|---|---|")
    for path in paths:
        print("\n".join(rows_of(path)))


if __name__ == "__main__":
    main()
