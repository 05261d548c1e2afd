"""Where the corpora beside the project lie, on machines that have them."""

from __future__ import annotations

from pathlib import Path

SHARED = Path(__file__).parents[2] / "../shared/data"
