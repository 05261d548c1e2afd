"""Print what an image installs before the project's own code: `python requirements.py pyproject.toml EXTRA …`.

Installed first, these make a layer that stays the same while the code changes.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(project: dict[str, object], extras: list[str]) -> list[str]:
    """Requirements of a project and some of its extras, in order.

    Raises:
        KeyError: there is no such extra.
    """
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    found: list[str] = list(project["dependencies"])  # type: ignore[call-overload]
    for extra in extras:
        found += optional[extra]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    table = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
    print("\n".join(requirements(table, sys.argv[2:])))
