"""A service that answers on a real port, in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from structlog.testing import capture_logs

from service.app import create_app
from service.http.desk import Desk
from service.local.ports import claim_port
from service.settings import Settings


@contextmanager
def serve_app(app: Any, port: int = 0) -> Iterator[str]:
    """An ASGI application on a port, a free one for 0; its address."""
    port = claim_port(port, "a test", "", set())
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)


@contextmanager
def serve_desk(settings: Settings, desk: Desk, port: int = 0) -> Iterator[str]:
    """The service over a given desk, without a reconciler."""

    @contextmanager
    def wire(_: Settings) -> Iterator[Desk]:
        yield desk

    # The service's log would stand in the output of the command under test: they share a process here.
    with capture_logs(), serve_app(create_app(settings, wire), port) as url:
        yield url
