"""`/v1/events` and `/v1/jobs/{job_id}/events`: what happens, as server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from service.access.principals import Permission
from service.errors import Fault, InvalidRequestError, NotAuthenticatedError
from service.feeds.feed import End, FeedItem, Opened, Reset
from service.http.authorisation import CallerDep
from service.http.desk import EventsDep
from service.http.problems import problems
from service.http.routes.jobs import JobId
from service.http.schemas import EventQuery
from service.http.streams import StreamGuard, StreamGuardDep

router = APIRouter(prefix="/v1", tags=["events"])

KEEP_ALIVE_SECONDS = 15
SEND_TIMEOUT_SECONDS = 60
"""A follower that takes nothing for so long is let go; it comes back with `Last-Event-ID`."""
_RETRY_MILLISECONDS = 2000
_TEXT = {"type": "string"}
_EVENT = {"type": "object", "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT}, "required": ["data"]}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events whose ids are their numbers: `open`, then `created`, `state`, `progress`, `metrics` "
        "and `wish`, whose data are JSON; `reset` where some are missing, and of a job `end` when it is over.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
}
LastEventId = Annotated[str | None, Header()]


@router.get("/events", response_class=EventSourceResponse, responses={**problems(503), **_STREAM})
async def follow_events(
    query: Annotated[EventQuery, Query()],
    events: EventsDep,
    caller: CallerDep,
    guard: StreamGuardDep,
    last_event_id: LastEventId = None,
) -> Response:
    """Everything that happens to the jobs of the projects that the principal sees, as it happens. `Last-Event-ID` takes
    up where a broken connection ended. A connection ends when its key or token does.
    """
    assert caller.principal is not None
    visible = caller.principal.projects_with(Permission.JOBS_READ)
    return await _stream(guard, events.follow(_after(query, last_event_id), projects=visible))


@router.get("/jobs/{job_id}/events", response_class=EventSourceResponse, responses={**problems(404, 503), **_STREAM})
async def follow_job_events(
    job_id: JobId,
    query: Annotated[EventQuery, Query()],
    events: EventsDep,
    guard: StreamGuardDep,
    last_event_id: LastEventId = None,
) -> Response:
    """What happens to one job, to its end; with `after=0` from its beginning, as far as events are kept."""
    return await _stream(guard, events.follow(_after(query, last_event_id), job_id))


async def _stream(guard: StreamGuard, followed: AsyncGenerator[FeedItem]) -> Response:
    items = await guard.open(followed)
    # The first is waited for here: a refusal is an answer of its own then, and not the end of a stream.
    first = await anext(items, None)
    if first is None:
        raise NotAuthenticatedError("The key or token ended while the stream was being opened.")
    return EventSourceResponse(_sent(first, items), ping=KEEP_ALIVE_SECONDS, send_timeout=SEND_TIMEOUT_SECONDS)


async def _sent(first: FeedItem, items: AsyncGenerator[FeedItem]) -> AsyncIterator[ServerSentEvent]:
    async with aclosing(items):
        yield _event(first)
        async for item in items:
            yield _event(item)


def _event(item: FeedItem) -> ServerSentEvent:
    if isinstance(item, Opened):
        return ServerSentEvent(_json({"seq": item.seq}), event="open", id=str(item.seq), retry=_RETRY_MILLISECONDS)
    if isinstance(item, Reset):
        return ServerSentEvent(_json({"seq": item.seq}), event="reset", id=str(item.seq))
    if isinstance(item, End):
        return ServerSentEvent(_json({"state": item.state}), event="end", id=str(item.seq))
    data = {"seq": item.seq, "at": item.at.isoformat(), "job_id": item.job_id, "type": item.type.value}
    return ServerSentEvent(_json(data | {"payload": item.payload}), event=item.type.value, id=str(item.seq))


def _json(data: dict[str, Any]) -> str:
    # ASCII: line ends of Unicode that a payload may hold are escaped, and no reader takes them for its own.
    return json.dumps(data, allow_nan=False)


def _after(query: EventQuery, last_event_id: str | None) -> int | None:
    if not last_event_id:
        return query.after
    if re.fullmatch(r"[0-9]{1,15}", last_event_id, re.ASCII) is None:
        rule = "must be the id of an event of this stream, such as 1200"
        raise InvalidRequestError(f"Last-Event-ID {rule}.", [Fault("/header/Last-Event-ID", rule, last_event_id[:100])])
    return int(last_event_id)
