"""Contenders in processes of their own, so that none inherits another's allocator, threads or settings of torch."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from contenders.agreement import Contender

_CONTEXT = multiprocessing.get_context("spawn")


class Home:
    """A process with some contenders in it. It computes only while it is asked, and then nobody else does."""

    def __init__(self, build: Callable[..., dict[str, Contender]], *arguments: Any) -> None:
        """Start a process that calls the module-level function `build`; `names` waits for it."""
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, build, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def names(self) -> list[str]:
        """The contenders that live here."""
        return self._receive()

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a contender's method."""
        self._connection.send((name, method, arguments))
        return self._receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.terminate()

    def _receive(self) -> Any:
        try:
            is_error, value = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"a contender's process ended with exit code {self._process.exitcode}") from None
        if is_error:
            raise RuntimeError(value)
        return value


class SameProcess:
    """A home without a process: quicker to start, but its contenders share all that is set for a process."""

    def __init__(self, build: Callable[..., dict[str, Contender]], *arguments: Any) -> None:
        self._contenders = build(*arguments)

    def names(self) -> list[str]:
        return list(self._contenders)

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        return getattr(self._contenders[name], method)(*arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _serve(connection: Connection, build: Callable[..., dict[str, Contender]], arguments: tuple[Any, ...]) -> None:
    try:
        contenders = build(*arguments)
        connection.send((False, list(contenders)))
    except Exception:  # noqa: BLE001 - told to the process that asked
        connection.send((True, traceback.format_exc()))
        return
    while True:
        try:
            name, method, given = connection.recv()
        except EOFError:
            return
        try:
            connection.send((False, getattr(contenders[name], method)(*given)))
        except Exception:  # noqa: BLE001 - as above
            connection.send((True, traceback.format_exc()))
