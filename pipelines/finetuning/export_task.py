"""What is exported of a finished run, and what its card says."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.finetuning.seed_task import SeedResult, SeedTask
from pipelines.specs.documents import TaskScores


@dataclass(frozen=True)
class ExportTask:
    """One export."""

    run: SeedTask
    """The best seed's."""
    scores: TaskScores
    result: SeedResult
    """What that run left."""
    job_id: str
    model_name: str
    license: str | None
    uri: str
    """Folder that gets the files."""
