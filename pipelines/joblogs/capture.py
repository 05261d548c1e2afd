"""What a process says past its logger: warnings, uncaught exceptions, printed lines."""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TextIO

from pipelines.joblogs.keeper import LogKeeper

_LONGEST_LINE = 8000
"""Characters after which a line that does not end is taken for one."""


@contextmanager
def capturing(keeper: LogKeeper, *, prints: bool) -> Iterator[None]:
    """Keep warnings and uncaught exceptions, with `prints` all that is printed too; all of it goes its own way as well.

    Not with `prints` where what other processes print comes by, as in the driver of a Ray job.
    """
    tees = [_Tee(getattr(sys, name), keeper, name) for name in ("stdout", "stderr")] if prints else []
    hooks = _Hooks(keeper, tees)
    before = (warnings.showwarning, sys.excepthook, threading.excepthook)
    warnings.showwarning, sys.excepthook, threading.excepthook = (
        hooks.show_warning(before[0]),
        hooks.except_hook(before[1]),
        hooks.thread_hook(before[2]),
    )
    installed = (warnings.showwarning, sys.excepthook, threading.excepthook)
    for tee in tees:
        setattr(sys, tee.stream_name, tee)
    try:
        yield
    finally:
        # Whoever has put something in our place since keeps it.
        if warnings.showwarning is installed[0]:
            warnings.showwarning = before[0]
        if sys.excepthook is installed[1]:
            sys.excepthook = before[1]
        if threading.excepthook is installed[2]:
            threading.excepthook = before[2]
        for tee in tees:
            tee.end()
            if getattr(sys, tee.stream_name) is tee:
                setattr(sys, tee.stream_name, tee.original)


class _Hooks:
    def __init__(self, keeper: LogKeeper, tees: Sequence[_Tee]) -> None:
        self._keeper = keeper
        self._tees = tees

    def show_warning(self, before: Any) -> Any:
        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any, **more: Any
        ) -> None:
            words = f"{category.__name__}: {message}"
            self._keeper.add("warning", "warnings", words, {"file": filename, "line": lineno})
            for tee in self._tees:
                tee.is_muted = True  # else what is printed of it is kept a second time
            try:
                before(message, category, filename, lineno, *rest, **more)
            finally:
                for tee in self._tees:
                    tee.is_muted = False

        return show

    def except_hook(self, before: Any) -> Any:
        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._keeper.add("critical", "uncaught", "".join(traceback.format_exception(kind, error, trace)))
            before(kind, error, trace)

        return hook

    def thread_hook(self, before: Any) -> Any:
        def hook(what: threading.ExceptHookArgs) -> None:
            words = "".join(traceback.format_exception(what.exc_type, what.exc_value, what.exc_traceback))
            name = what.thread.name if what.thread else ""
            self._keeper.add("error", "uncaught", words, {"thread": name})
            before(what)

        return hook


class _Tee:
    """A stream that keeps whole lines of what passes. Of a line that is written over, as progress bars do, the last."""

    def __init__(self, original: TextIO, keeper: LogKeeper, stream_name: str) -> None:
        self.original = original
        self.stream_name = stream_name
        self._keeper = keeper
        self._rest = ""
        self._has_ended = False
        self.is_muted = False
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """As of any stream."""
        count = self.original.write(text)
        if not self._has_ended and not self.is_muted:
            with self._lock:
                *lines, self._rest = (self._rest + text).split("\n")
                if len(self._rest) > _LONGEST_LINE:
                    self._rest = self._rest.rpartition("\r")[2]
                while len(self._rest) > _LONGEST_LINE:
                    lines.append(self._rest[:_LONGEST_LINE])
                    self._rest = self._rest[_LONGEST_LINE:]
            for line in lines:
                self._keep(line)
        return count

    def end(self) -> None:
        """Keep what has no line end; from now on nothing is kept, though somebody may hold on to the stream."""
        self._has_ended = True
        with self._lock:
            line, self._rest = self._rest, ""
        self._keep(line)

    def _keep(self, line: str) -> None:
        shown = line.rstrip("\r").rpartition("\r")[2]
        if shown.strip():
            self._keeper.add("info", self.stream_name, shown)

    def flush(self) -> None:
        """As of any stream."""
        self.original.flush()

    def isatty(self) -> bool:
        """As the original."""
        return self.original.isatty()

    def fileno(self) -> int:
        """As the original; what is written there passes by."""
        return self.original.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)
