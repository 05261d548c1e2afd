"""What is told of jobs and of the service: frozen records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from service.states import JobState


class EventType(StrEnum):
    """What has happened to a job."""

    CREATED = "created"
    STATE = "state"
    """It moved to another state, or to its next attempt."""
    PROGRESS = "progress"
    METRICS = "metrics"
    """New figures of training or of the result."""
    WISH = "wish"
    """Someone asked something of it, such as to stop."""


@dataclass(frozen=True)
class Told:
    """An event before it has its number."""

    type: EventType
    payload: Mapping[str, Any]


@dataclass(frozen=True)
class JobEvent:
    """One event, as it was written with the row it tells of."""

    seq: int
    """Counted from 1 over all jobs without a gap, in the order in which the rows were written."""
    at: datetime
    job_id: str
    project: str
    type: EventType
    payload: Mapping[str, Any]


@dataclass(frozen=True)
class EventPage:
    """Events after a position, in order."""

    events: tuple[JobEvent, ...]
    pruned_seq: int
    """Events up to this one are gone."""
    last_seq: int
    """The last there was when the page was read: of a page that is not full, nothing up to it is missing."""


@dataclass(frozen=True)
class JobFigures:
    """How many jobs there are, by state."""

    counts: Mapping[JobState, int]
    oldest_queued_at: datetime | None
    """When the job that waits longest came; None when none waits."""
