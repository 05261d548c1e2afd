"""Which job and attempt a process works for, and under which name it keeps its log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from pipelines import storage
from pipelines.joblogs.capture import capturing
from pipelines.joblogs.handler import logging_to
from pipelines.joblogs.keeper import LogKeeper
from pipelines.specs.log_lines import DEFAULT_SOURCE_BYTES, SOURCE_BYTES_VARIABLE, attempt_folder, source_name

_Argument = TypeVar("_Argument")
_Returned = TypeVar("_Returned")

_LEAST_BYTES = 64 * 1024


@dataclass(frozen=True)
class LogContext:
    """Given to every process of an attempt by the one that starts it."""

    job_uri: str
    attempt: int
    prefix: str = ""
    """Stands before the names of the processes that are started from here."""

    def named(self, name: str) -> str:
        """Name of a source started from here."""
        return source_name(self.prefix + name)


_current: list[LogContext] = []


def current_context() -> LogContext | None:
    """That of this process; None where nothing is kept."""
    return _current[-1] if _current else None


@contextmanager
def keep_logs(context: LogContext | None, name: str, *, prints: bool = True) -> Iterator[None]:
    """Keep this process's log until the block ends, and what ends it if it is an exception.

    Args:
        context: of who started it; None keeps nothing.
        name: of the source, such as `driver` or `rank-0`.
        prints: see `capturing`.
    """
    if context is None:
        yield
        return
    source = context.named(name)
    uri = storage.join(context.job_uri, attempt_folder(context.attempt), source)
    keeper = LogKeeper(uri, source, _max_bytes())
    keeper.start()
    inner = context if not context.prefix and name == "driver" else replace(context, prefix=f"{source}-")
    _current.append(inner)
    try:
        with logging_to(keeper), capturing(keeper, prints=prints):
            try:
                yield
            except Exception as error:
                keeper.add("error", "uncaught", _trace(error))
                raise
    finally:
        _current.remove(inner)
        keeper.close()


class SwitchedLogs:
    """The log of a process that is one source after another, as actors that take trial after trial are."""

    def __init__(self, context: LogContext | None) -> None:
        self._context = context
        self._opened = ExitStack()

    def switch(self, name: str) -> None:
        """From now on it is this source."""
        self._opened.close()
        self._opened.enter_context(keep_logs(self._context, name))

    def close(self) -> None:
        """From now on it is none."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def kept_call(
    context: LogContext | None, name: str, function: Callable[[_Argument], _Returned], argument: _Argument
) -> _Returned:
    """A call in a process of Ray's, with its log kept."""
    from pipelines.logs import configure_logging

    if context is None:
        return function(argument)
    configure_logging(job_id=context.job_uri.rstrip("/").rpartition("/")[2], source=context.named(name))
    with keep_logs(context, name):
        return function(argument)


def call_name(function: Callable[..., Any], argument: object, place: int) -> str:
    """What a call is called: `log_source` of its argument, or the function's name and the place among such calls."""
    own = getattr(argument, "log_source", None)
    return own if isinstance(own, str) else f"{function.__name__.strip('_').replace('_', '-')}-{place}"


def _max_bytes() -> int:
    given = os.environ.get(SOURCE_BYTES_VARIABLE, "")
    return max(_LEAST_BYTES, int(given)) if given.isdecimal() else DEFAULT_SOURCE_BYTES


def _trace(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))
