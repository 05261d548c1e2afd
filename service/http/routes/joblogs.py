"""`/v1/jobs/{job_id}/logs`: what a job printed, at once or as it comes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import PlainTextResponse, Response

from service.errors import Fault, InvalidRequestError
from service.http.desk import JobsDep, LogsDep
from service.http.problems import problems
from service.http.routes.jobs import JobId
from service.http.schemas import LogQuery
from service.joblogs import JobLogs, LinePosition, LogLine

router = APIRouter(prefix="/v1", tags=["jobs"])

KEEP_ALIVE_SECONDS = 15
_LAST_EVENT_ID = re.compile(r"([1-9][0-9]{0,5}):([0-9]{1,12})")
_TEXT = {"type": "string"}
_EVENT = {"type": "object", "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT}, "required": ["data"]}
_CONTENT = {
    "description": "The log; with `follow`, its lines as events whose ids are `attempt:line`, then an event `end`.",
    "content": {"text/plain": {"schema": _TEXT}, "text/event-stream": {"schema": _EVENT}},
}


@router.get("/jobs/{job_id}/logs", response_class=PlainTextResponse, responses={**problems(404, 503), 200: _CONTENT})
async def get_logs(
    job_id: JobId,
    query: Annotated[LogQuery, Query()],
    request: Request,
    jobs: JobsDep,
    logs: LogsDep,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """What a job printed: one attempt as text, or all of it as server-sent events while it comes.

    Events are sent with `follow=true` or `Accept: text/event-stream`; `Last-Event-ID` takes up where a broken
    connection ended.
    """
    job = await run_in_threadpool(jobs.get, job_id)
    if query.follow or "text/event-stream" in request.headers.get("accept", ""):
        after = _position(last_event_id) if last_event_id else LinePosition(query.attempt or 1, 0)
        return EventSourceResponse(_events(logs, job_id, after), ping=KEEP_ALIVE_SECONDS)
    return PlainTextResponse(await run_in_threadpool(logs.read, job, query.attempt, query.tail))


async def _events(logs: JobLogs, job_id: str, after: LinePosition) -> AsyncIterator[ServerSentEvent]:
    async for item in logs.follow(job_id, after):
        if isinstance(item, LogLine):
            yield ServerSentEvent(item.text.rstrip("\r"), id=str(item.position))
        else:
            yield ServerSentEvent(item.job.state.value, event="end")


def _position(last_event_id: str) -> LinePosition:
    found = _LAST_EVENT_ID.fullmatch(last_event_id)
    if found is None:
        rule = "must be the id of an event of this stream, such as 1:200"
        raise InvalidRequestError(f"Last-Event-ID {rule}.", [Fault("/header/Last-Event-ID", rule, last_event_id[:100])])
    return LinePosition(int(found[1]), int(found[2]))
