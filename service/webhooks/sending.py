"""One POST to one address: to the very address that was checked, with no redirect, and in bounded time.

Of the answer the status alone is read.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpcore

from pipelines.storage.web_guard import RefusedAddressError
from service.webhooks.addresses import resolved


class SendError(Exception):
    """The message did not arrive, as far as can be told; the message is a word or two of our own."""


class Sender:
    """Sends messages. Each has a connection of its own, so that its time is its own too."""

    def __init__(self, named_hosts: Sequence[str], timeout_seconds: float) -> None:
        """Args:
        named_hosts: may be asked although they are inside the own network.
        timeout_seconds: from the first step to the answer's status.
        """
        self._named_hosts = tuple(named_hosts)
        self._timeout_seconds = timeout_seconds
        self._tls = ssl.create_default_context()

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer.

        Raises:
            SendError: there was none.
        """
        backend = _GuardedBackend(self._named_hosts, time.monotonic() + self._timeout_seconds)
        head: dict[bytes | str, bytes | str] = dict(headers.items())
        head |= {"Content-Length": str(len(body)), "Connection": "close"}
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), self._timeout_seconds)
        try:
            with (
                httpcore.ConnectionPool(ssl_context=self._tls, network_backend=backend, max_connections=1) as pool,
                pool.stream(
                    "POST",
                    url,
                    headers=head,
                    content=body,
                    extensions={"timeout": timeout},
                ) as answer,
            ):
                return answer.status
        except RefusedAddressError as error:
            raise SendError("address_refused") from error
        except httpcore.TimeoutException as error:
            raise SendError("timeout") from error
        except (httpcore.ConnectError, OSError) as error:
            kind = "tls" if isinstance(error.__cause__, ssl.SSLError) else "connect"
            raise SendError(kind) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, ValueError) as error:
            raise SendError("protocol") from error


class _GuardedBackend(httpcore.NetworkBackend):
    """Connects to checked addresses alone. TLS is still asked for the host's name: httpcore passes that by itself."""

    def __init__(self, named_hosts: Sequence[str], deadline: float) -> None:
        self._named_hosts = named_hosts
        self._deadline = deadline
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection, unless the host has an address that is not public."""
        try:
            found = resolved(host, port, self._named_hosts, _left(self._deadline, httpcore.ConnectTimeout))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        for address in found[:-1]:
            with suppress(httpcore.ConnectError):
                return self._connect(address, port, local_address, socket_options)
        return self._connect(found[-1], port, local_address, socket_options)

    def _connect(
        self, address: str, port: int, local_address: str | None, socket_options: Iterable[Any] | None
    ) -> httpcore.NetworkStream:
        left = _left(self._deadline, httpcore.ConnectTimeout)
        stream = self._network.connect_tcp(address, port, left, local_address, socket_options)
        return _TimedStream(stream, self._deadline)


class _TimedStream(httpcore.NetworkStream):
    """A connection with one end for all that is done on it: a receiver that sends byte by byte gains no time."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What comes."""
        return self._stream.read(max_bytes, _left(self._deadline, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send."""
        self._stream.write(buffer, _left(self._deadline, httpcore.WriteTimeout))

    def close(self) -> None:
        """Let go."""
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """The same, within TLS."""
        left = _left(self._deadline, httpcore.ConnectTimeout)
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks of a connection."""
        return self._stream.get_extra_info(info)


def _left(deadline: float, error: type[httpcore.TimeoutException]) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise error("the time is over")
    return left
