"""The README's figures are those of the kept results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_the_kept_results():
    made = subprocess.run([sys.executable, "benchmarks/table.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "_vs_transformers_naive" in made.stdout
    assert made.stdout.strip() in (ROOT / "README.md").read_text(encoding="utf-8")
