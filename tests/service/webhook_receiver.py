"""A receiver of webhooks on a real port, which answers as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOCAL = "127.0.0.1"


@dataclass
class Receiver:
    """What came, oldest first, and what to answer: a status for each request, the last of them for all that follow."""

    statuses: list[int] = field(default_factory=lambda: [200])
    drip_seconds: float = 0.0
    """Pause before each byte of the answer's head."""
    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def types(self) -> list[str]:
        import json

        return [json.loads(body)["type"] for _, body in self.got]

    def answer(self, headers: dict[str, str], body: bytes) -> int:
        self.got.append((headers, body))
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@contextmanager
def receiving(**given: Any) -> Iterator[Receiver]:
    receiver = Receiver(**given)
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.answer({key.lower(): value for key, value in self.headers.items()}, body)
            if receiver.drip_seconds:
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000:
                    if stopped.is_set():
                        return
                    try:
                        self.wfile.write(bytes([byte]))
                    except OSError:
                        return
                    time.sleep(receiver.drip_seconds)
                return
            self.send_response(status)
            self.send_header("Location", f"{receiver.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer((LOCAL, 0), Handler)
    receiver.url = f"http://{LOCAL}:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
