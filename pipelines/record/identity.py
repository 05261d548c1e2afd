"""Which run a job is recorded in. Without MLflow, whose import takes seconds: all workers are told, one records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunIdentity:
    """Enough to open a run from any process."""

    tracking_uri: str
    experiment_id: str
    run_id: str
