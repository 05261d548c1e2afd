"""`/v1/jobs/{job_id}/logs`: what a job printed and what its processes logged, at once or as it comes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import PlainTextResponse, Response

from pipelines.specs.log_lines import DRIVER_OUTPUT
from service.errors import Fault, InvalidCursorError, InvalidRequestError
from service.http.desk import JobsDep, KeptLogsDep, LogsDep
from service.http.log_schemas import LogPage, LogQuery, LogRecord, LogSource, LogSourceList, LogSourceQuery
from service.http.problems import problems
from service.http.routes.jobs import JobId
from service.http.streams import StreamGuard, StreamGuardDep
from service.joblogs.cursors import LogCursor
from service.joblogs.kept import FollowedLine, KeptLogs, LogWish
from service.joblogs.lines import KeptLine, render_line
from service.joblogs.merging import LineFilter
from service.joblogs.printed import JobLogs, LinePosition, LogEnd, LogLine

router = APIRouter(prefix="/v1", tags=["jobs"])

KEEP_ALIVE_SECONDS = 15
SEND_TIMEOUT_SECONDS = 60
"""A follower of kept logs that takes nothing for so long is let go; it comes back with `Last-Event-ID`."""
DEFAULT_LIMIT = 200
_LAST_EVENT_ID = re.compile(r"([1-9][0-9]{0,5}):([0-9]{1,12})")
_TEXT: dict[str, Any] = {"type": "string"}
# Whole: FastAPI would lay a `model` over the schema of each content there is, and over whatever these share.
_PAGE = LogPage.model_json_schema()
_PAGE["properties"]["items"]["items"] = _PAGE.pop("$defs")["LogRecord"]
_EVENT = {"type": "object", "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT}, "required": ["data"]}
_CONTENT = {
    "description": "The log; with `follow`, its lines as events, then an event `end`. Ids of events are `attempt:line` "
    "for what the driver printed, and cursors for what the processes logged.",
    "content": {
        "application/json": {"schema": _PAGE},
        "text/plain": {"schema": _TEXT},
        "application/x-ndjson": {"schema": _TEXT},
        "text/event-stream": {"schema": _EVENT},
    },
    "headers": {
        "X-Next-Cursor": {"description": "Leads to the lines after these; absent at the end.", "schema": _TEXT},
        "X-Truncated": {"description": "`true` where the page ends early for what was read.", "schema": _TEXT},
    },
}


@router.get("/jobs/{job_id}/logs", response_class=PlainTextResponse, responses={**problems(404, 503), 200: _CONTENT})
async def get_logs(
    job_id: JobId,
    query: Annotated[LogQuery, Query()],
    request: Request,
    jobs: JobsDep,
    logs: LogsDep,
    kept_logs: KeptLogsDep,
    guard: StreamGuardDep,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """What a job printed, one attempt as text; or what its processes logged, searched; or either as it comes.

    What the processes logged is sent when `source`, `level`, `contains`, `since`, `until`, `limit`, `cursor` or
    `format` is given. Events are sent with `follow=true` or `Accept: text/event-stream`; `Last-Event-ID` takes up
    where a broken connection ended.
    """
    _check(query)
    job = await run_in_threadpool(jobs.get, job_id)
    is_followed = query.follow or "text/event-stream" in request.headers.get("accept", "")
    if query.is_of_processes:
        cursor = _cursor(last_event_id, "/header/Last-Event-ID") if is_followed and last_event_id else None
        cursor = cursor or (_cursor(query.cursor, "/query/cursor") if query.cursor else None)
        if is_followed:
            items = kept_logs.followed(job_id, _wish(query), cursor)
            # The first is waited for here: a refusal is an answer of its own then, and not the end of a stream.
            await anext(items)
            kept = _kept_events(items, is_json=query.format in ("json", "jsonl"))
            return await _answered(guard, kept, items)
        page = await kept_logs.page(job, _wish(query), cursor, query.limit or DEFAULT_LIMIT)
        return _answer(query.format, page.lines, page.next_cursor, is_truncated=page.is_truncated)
    if is_followed:
        after = _position(last_event_id) if last_event_id else LinePosition(query.attempt or 1, 0)
        printed = _events(logs, kept_logs, job_id, after)
        await anext(printed)
        return await _answered(guard, printed)
    return PlainTextResponse(await run_in_threadpool(logs.read, job, query.attempt, query.tail))


@router.get("/jobs/{job_id}/logs/sources", responses=problems(404, 503))
def list_log_sources(
    job_id: JobId, query: Annotated[LogSourceQuery, Query()], jobs: JobsDep, kept_logs: KeptLogsDep
) -> LogSourceList:
    """The processes of an attempt that keep logs of their own."""
    attempt, found = kept_logs.sources(jobs.get(job_id), query.attempt)
    items = [LogSource(source=one.name, started_at=one.started_at, size_bytes=one.size_bytes) for one in found]
    return LogSourceList(attempt=attempt, items=tuple(items))


async def _answered(
    guard: StreamGuard, events: AsyncGenerator[ServerSentEvent], *held: AsyncGenerator[Any]
) -> EventSourceResponse:
    """`held` have taken a place already, and give it back where the principal is refused."""
    try:
        guarded = await guard.open(events)
    except BaseException:
        for one in (events, *held):
            await one.aclose()
        raise
    return EventSourceResponse(guarded, ping=KEEP_ALIVE_SECONDS, send_timeout=SEND_TIMEOUT_SECONDS)


async def _events(
    logs: JobLogs, kept_logs: KeptLogs, job_id: str, after: LinePosition
) -> AsyncGenerator[ServerSentEvent]:
    """The first item says that there is room, and is sent to nobody."""
    with kept_logs.place():
        yield ServerSentEvent(comment="")
        async for item in logs.follow(job_id, after):
            if isinstance(item, LogLine):
                yield ServerSentEvent(item.text.rstrip("\r"), id=str(item.position))
            else:
                yield ServerSentEvent(item.job.state.value, event="end")


async def _kept_events(
    items: AsyncGenerator[FollowedLine | LogEnd | None], *, is_json: bool
) -> AsyncGenerator[ServerSentEvent]:
    async with aclosing(items):
        async for item in items:
            if isinstance(item, FollowedLine):
                text = _record(item.line).model_dump_json() if is_json else render_line(item.line)
                yield ServerSentEvent(text, id=item.cursor)
            elif item is not None:
                yield ServerSentEvent(item.job.state.value, event="end")


def _answer(form: str | None, lines: Sequence[KeptLine], next_cursor: str | None, *, is_truncated: bool) -> Response:
    if form == "json":
        page = LogPage(items=tuple(map(_record, lines)), truncated=is_truncated, next_cursor=next_cursor)
        return Response(page.model_dump_json(), media_type="application/json")
    headers = {"X-Next-Cursor": next_cursor} if next_cursor else {}
    if is_truncated:
        headers["X-Truncated"] = "true"
    if form == "jsonl":
        text = "".join(f"{_record(line).model_dump_json()}\n" for line in lines)
        return Response(text, media_type="application/x-ndjson", headers=headers)
    return PlainTextResponse("".join(f"{render_line(line)}\n" for line in lines), headers=headers)


def _record(line: KeptLine) -> LogRecord:
    return LogRecord(
        time=line.time,
        level=line.level,
        source=line.source,
        logger=line.logger,
        message=line.message,
        fields=dict(line.fields),
    )


def _wish(query: LogQuery) -> LogWish:
    lines = LineFilter(query.level or "debug", query.contains or "", query.since, query.until)
    return LogWish(query.attempt, tuple(query.source), lines)


def _check(query: LogQuery) -> None:
    """Raise `InvalidRequestError` where fields do not go together."""
    others = query.model_fields_set - {"attempt", "tail", "follow", "source"}
    fault = None
    if DRIVER_OUTPUT in query.source and (len(query.source) > 1 or others):
        rule = f"{DRIVER_OUTPUT} must stand by itself, with attempt, tail and follow at most"
        fault = Fault("/query/source", rule, ", ".join([*query.source, *sorted(others)])[:200])
    elif query.tail is not None and query.is_of_processes:
        fault = Fault("/query/tail", "must be absent where the logs of processes are asked for", str(query.tail))
    if fault is not None:
        raise InvalidRequestError(f"{fault.pointer.rpartition('/')[2]}: {fault.rule}.", [fault])


def _cursor(text: str, pointer: str) -> LogCursor:
    try:
        return LogCursor.decode(text)
    except ValueError as error:
        rule = "must be the next_cursor of an earlier page, or the id of an event of this stream"
        raise InvalidCursorError(f"{pointer.rpartition('/')[2]} {rule}.", [Fault(pointer, rule, text[:100])]) from error


def _position(last_event_id: str) -> LinePosition:
    found = _LAST_EVENT_ID.fullmatch(last_event_id)
    if found is None:
        rule = "must be the id of an event of this stream, such as 1:200"
        raise InvalidRequestError(f"Last-Event-ID {rule}.", [Fault("/header/Last-Event-ID", rule, last_event_id[:100])])
    return LinePosition(int(found[1]), int(found[2]))
