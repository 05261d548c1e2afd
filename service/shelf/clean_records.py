"""What a cleaning is asked for, and what it says of each thing it looked at. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CleanedKind = Literal["corpus", "texts", "checkpoint", "job_folder", "leftover"]
Outcome = Literal["would_delete", "deleted", "kept", "failed"]


@dataclass(frozen=True, kw_only=True)
class CleanWish:
    """Which rules count; None turns one off."""

    dry_run: bool = True
    unused_corpora_days: float | None = None
    """Prepared corpora and cleaned texts that no job used for so long go."""
    checkpoints_to_keep: int | None = None
    """Of jobs that are over so many of the newest checkpoints stay."""
    archived_jobs_days: float | None = None
    """Folders of archived jobs that ended so long ago go."""


@dataclass(frozen=True, kw_only=True)
class CleanedItem:
    """One thing that a rule was held against."""

    kind: CleanedKind
    path: str
    """Below the storage."""
    size_bytes: int
    outcome: Outcome
    reason: str
    """Why it goes, or why it stays."""


@dataclass(frozen=True)
class Cleaned:
    """All that was looked at."""

    items: Sequence[CleanedItem]
    dry_run: bool

    def bytes_of(self, *outcomes: Outcome) -> int:
        """Size of what came to one of these ends."""
        return sum(item.size_bytes for item in self.items if item.outcome in outcomes)

    def count_of(self, *outcomes: Outcome) -> int:
        """Number of things that did."""
        return sum(item.outcome in outcomes for item in self.items)
