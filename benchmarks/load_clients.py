"""Those who ask: connections that send requests one after another, and followers of a stream."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

CONNECTIONS = 4
"""Of requests at a time. Each sends the next when it has the answer."""


@dataclass(frozen=True)
class Request:
    """What is sent."""

    path: str
    method: str = "GET"
    body: object = None


@dataclass
class Round:
    """Seconds that each request took, that all took together, and that the asked process computed meanwhile."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def add(self, other: Round) -> None:
        """Another round of the same."""
        self.latencies += other.latencies
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds


def cpu_seconds(pid: int) -> float:
    """That a process has computed, in user and kernel mode, until now."""
    # The name of the program, in parentheses, may hold anything.
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def send_all(url: str, pid: int, asked: Iterable[Request], headers: dict[str, str]) -> Round:
    """Send requests over a few connections that stay open; any answer but success is an error."""
    computed = cpu_seconds(pid)
    waiting, lock, result, errors = iter(asked), threading.Lock(), Round(), list[str]()

    def work(connection: http.client.HTTPConnection) -> None:
        while not errors:
            with lock:
                request = next(waiting, None)
            if request is None:
                return
            body = None if request.body is None else json.dumps(request.body)
            sent = {**headers, **({"Content-Type": "application/json"} if body else {})}
            began = time.perf_counter()
            connection.request(request.method, request.path, body, sent)
            answer = connection.getresponse()
            content = answer.read()
            result.latencies.append(time.perf_counter() - began)  # appending is atomic
            if answer.status >= 300:
                errors.append(f"{request.method} {request.path}: {answer.status} {content[:300]!r}")

    host = urlsplit(url).netloc
    connections = [http.client.HTTPConnection(host, timeout=60) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.connect()
    threads = [threading.Thread(target=work, args=(connection,)) for connection in connections]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result.seconds = time.perf_counter() - began
    result.cpu_seconds = cpu_seconds(pid) - computed
    for connection in connections:
        connection.close()
    if errors:
        raise RuntimeError(errors[0])
    return result


@dataclass
class Follower:
    """What one connection got, in its order: number and when."""

    numbers: list[int] = field(default_factory=list)
    arrived_at: list[float] = field(default_factory=list)


async def follow(
    url: str, path: str, count: int, number_of: Callable[[str], int | None], last: int, write: Callable[[], None]
) -> list[Follower]:
    """Open as many streams, then have something written, and read each until it has the last of it.

    Args:
        url: of the service.
        path: of the stream.
        count: of followers.
        number_of: of a line `data:`, if it is one of those that are counted.
        last: the number after which a follower leaves.
        write: writes them all, in a process of its own; called once every stream is open.

    Raises:
        TimeoutError: some did not get the last within a minute after it was written.
    """
    followers = [Follower() for _ in range(count)]
    host, _, port = urlsplit(url).netloc.partition(":")
    opened = []
    for _ in followers:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
        opened.append((reader, writer))
    for reader, _ in opened:
        status = await asyncio.wait_for(reader.readline(), 60)
        if b" 200 " not in status:
            raise RuntimeError(f"a follower was answered {status!r}")
    try:
        reading = [
            asyncio.ensure_future(_read(reader, follower, number_of, last))
            for (reader, _), follower in zip(opened, followers, strict=True)
        ]
        await asyncio.to_thread(write)
        await asyncio.wait_for(asyncio.gather(*reading), 60)
    finally:
        for _, writer in opened:
            writer.close()
    return followers


async def _read(
    reader: asyncio.StreamReader, follower: Follower, number_of: Callable[[str], int | None], last: int
) -> None:
    # Chunks of the transfer end where messages do, so their lengths are lines that are passed over.
    while raw := await reader.readline():
        if not raw.startswith(b"data:"):
            continue
        number = number_of(raw.decode())
        if number is not None:
            follower.arrived_at.append(time.time())
            follower.numbers.append(number)
            if number == last:
                return
    raise RuntimeError("a stream ended before its time")
