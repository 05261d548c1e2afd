"""Streams outlast the moment in which their request was let through: who follows is looked at again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, TypeVar

import anyio
import structlog
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from service.access.access import Access
from service.access.principals import Principal
from service.http.authorisation import CallerDep
from service.http.desk import AccessDep

log = structlog.get_logger(__name__)
Item = TypeVar("Item")

SEND_TIMEOUT_SECONDS = 60
CHECK_SECONDS = 5.0
"""Between two looks at the principal of a stream: so long at most it outlives a key that was revoked."""


class StreamGuard:
    """Of one request that follows something."""

    def __init__(self, access: Access, principal: Principal, credentials: Sequence[str]) -> None:
        self._access = access
        self._principal = principal
        self._credentials = credentials

    async def open(self, items: AsyncGenerator[Item]) -> AsyncGenerator[Item]:
        """The items, as long as the principal is who it was when it asked.

        Raises:
            TooManyFollowersError: it follows as much as it may already.
        """
        if self._access.is_open:
            return items
        stream = self._counted(items)
        # Begun here, so that a refusal is an answer of its own, and what is begun gives its place back when it ends.
        await anext(stream)
        return stream

    async def _counted(self, items: AsyncGenerator[Item]) -> AsyncGenerator[Item]:
        with self._access.streams.one(self._principal.name):
            yield None  # type: ignore[misc]  # taken by `open`
            stream = while_allowed(items, self._is_allowed)
            try:
                async for item in stream:
                    yield item
            finally:
                with anyio.CancelScope(shield=True):
                    await stream.aclose()

    def _is_allowed(self) -> bool:
        return self._access.is_still(self._principal, self._credentials)


class TimedStream(StreamingResponse):
    """A body of a known length, given up where its reader takes nothing for `SEND_TIMEOUT_SECONDS`: it holds a place.

    One that ends early is not ended as it should be: whoever reads it sees that it is not whole.
    """

    async def stream_response(self, send: Send) -> None:
        """Send it all, or leave the connection in the midst of it."""
        left = int(self.headers["content-length"])
        try:
            await _send_in_time(
                send, {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            async for piece in self.body_iterator:
                assert isinstance(piece, bytes)
                left -= len(piece)
                await _send_in_time(send, {"type": "http.response.body", "body": piece, "more_body": True})
            if not left:
                await _send_in_time(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.info("stream_not_taken", seconds=SEND_TIMEOUT_SECONDS, left_bytes=left)
        finally:
            close = getattr(self.body_iterator, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await close()


async def _send_in_time(send: Send, message: Message) -> None:
    with anyio.fail_after(SEND_TIMEOUT_SECONDS):
        await send(message)


async def while_allowed(items: AsyncGenerator[Item], is_allowed: Callable[[], bool]) -> AsyncGenerator[Item]:
    """The items until `is_allowed` says no; it is asked in a thread, and whether items come or not."""
    waiting: asyncio.Future[Item] | None = None
    asked_at = time.monotonic()
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(items))
            await asyncio.wait({waiting}, timeout=max(0.0, asked_at + CHECK_SECONDS - time.monotonic()))
            if time.monotonic() - asked_at >= CHECK_SECONDS:
                if not await _ask(is_allowed):
                    return
                asked_at = time.monotonic()
            if waiting.done():
                done, waiting = waiting, None
                try:
                    item = done.result()
                except StopAsyncIteration:
                    return
                yield item
    finally:
        with anyio.CancelScope(shield=True):
            if waiting is not None:
                waiting.cancel()
                await asyncio.wait({waiting})
                if not waiting.cancelled():
                    waiting.exception()  # whatever it was, nobody waits for it any more
            await items.aclose()


async def _ask(is_allowed: Callable[[], bool]) -> bool:
    try:
        return await run_in_threadpool(is_allowed)
    except Exception:  # a database that is away comes back, and says no then
        log.exception("stream_not_checked")
        return True


def _guard(request: Request, access: AccessDep, caller: CallerDep) -> StreamGuard:
    assert caller.principal is not None
    return StreamGuard(access, caller.principal, request.headers.getlist("authorization"))


StreamGuardDep = Annotated[StreamGuard, Depends(_guard)]
