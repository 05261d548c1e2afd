"""Events of the service as a program follows them: across broken connections, without a gap that goes unsaid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.http.server_events import ServerEvent


class FollowedEvent(BaseModel):
    """Something that happened, or `reset`: events are missing, and what was listed before must be listed again."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    """`created`, `state`, `progress`, `metrics`, `wish` or `reset`; newer services may say more."""
    seq: int
    """Give it as `after` to go on from here."""
    at: datetime | None = None
    job_id: str | None = None
    payload: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class EventStream:
    """How to get at a stream, and how patient to be."""

    connect: Callable[[str | None], Iterator[ServerEvent]]
    """Events after a last event id."""
    is_passing: Callable[[Exception], bool]
    """Whether an error of `connect` may be over soon."""
    patience_seconds: float
    retry_seconds: float


def follow_stream(stream: EventStream, after: int | None) -> Iterator[FollowedEvent]:
    """Events after a number, or new ones, until the stream says that the job is over; without end for all jobs."""
    last_event_id = None if after is None else str(after)
    heard_at = time.monotonic()
    while True:
        try:
            for event in stream.connect(last_event_id):
                heard_at = time.monotonic()
                last_event_id = event.event_id or last_event_id
                if event.name == "end":
                    return
                found = None if event.name == "open" else _read(event)
                if found is not None:
                    yield found
        except Exception as error:
            if not stream.is_passing(error) or time.monotonic() - heard_at > stream.patience_seconds:
                raise
        time.sleep(stream.retry_seconds)


def _read(event: ServerEvent) -> FollowedEvent | None:
    """None for what is no event of ours; newer services may say more than we know."""
    try:
        found = FollowedEvent.model_validate_json(event.data) if event.name != "reset" else None
        return found or FollowedEvent(type="reset", seq=int(event.event_id or 0))
    except (ValidationError, ValueError):
        return None
