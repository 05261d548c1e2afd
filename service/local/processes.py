"""One child process with a log of its own, and the sweep that leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from service.local.errors import ComponentFailedError

STACK_ID_VARIABLE = "ELECTRA_STACK_ID"
"""Inherited by every process below a stack, whatever session or group it moves to: how the sweep knows them."""

_POLL_SECONDS = 0.1
_KILL_SECONDS = 10.0
_SHOWN_LOG_LINES = 25
_TAIL_BYTES = 16_384


@dataclass(frozen=True)
class Plan:
    """A program to run and the question that shows it ready."""

    title: str
    """As people call it, at the start of a sentence."""
    command: Sequence[str]
    environment: Mapping[str, str]
    probe: Callable[[], str | None]
    """None when the component is ready, otherwise one line that says what is missing."""


@dataclass
class Component:
    """A program of the stack, started in a process group of its own.

    Its own group, because Ctrl-C in a terminal reaches the whole foreground group: the supervisor alone decides who
    stops when.
    """

    name: str
    """Short, for file names."""
    plan: Plan
    directory: Path
    """Working directory."""
    log_path: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _log_start: int = field(default=0, init=False)

    @property
    def pid(self) -> int | None:
        """Of the group's leader, while there is one."""
        return None if self.process is None else self.process.pid

    def start(self) -> None:
        """Start the program; it is not ready yet."""
        assert self.process is None, f"{self.name} is started already"
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(  # noqa: S603 - our own command line, no shell
                self.plan.command,
                cwd=self.directory,
                env=dict(self.plan.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self, timeout_seconds: float, check_others: Callable[[], None] = lambda: None) -> None:
        """Return once the probe is content.

        Raises:
            ComponentFailedError: the program ended, or the time is over.
            StackError: `check_others` said so.
        """
        deadline = time.monotonic() + timeout_seconds
        while (missing := self.plan.probe()) is not None:
            self.check_alive("while starting")
            check_others()
            if time.monotonic() > deadline:
                message = f"{self.plan.title} was not ready within {timeout_seconds:.0f} s: {missing}"
                raise ComponentFailedError(message, self.log_path, self.log_end())
            time.sleep(_POLL_SECONDS)

    def check_alive(self, when: str = "by itself") -> None:
        """Do nothing while the program runs.

        Raises:
            ComponentFailedError: it has ended.
        """
        code = None if self.process is None else self.process.poll()
        if code is not None:
            how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
            raise ComponentFailedError(f"{self.plan.title} stopped {when}, {how}", self.log_path, self.log_end())

    def kill(self) -> None:
        """SIGKILL to the whole group, now."""
        if self.process is not None:
            _signal_group(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM to the leader, which ends its children in its own order; after the grace, SIGKILL to the group."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=grace_seconds)
        self.kill()

    def log_end(self) -> str:
        """Last lines that this start wrote."""
        try:
            with self.log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _TAIL_BYTES))
                text = log.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-_SHOWN_LOG_LINES:])


def sweep(stack_id: str, grace_seconds: float) -> int:
    """End every process that still carries the stack's mark: SIGTERM, then SIGKILL.

    Jobs run in sessions of their own, so that no group reaches them.

    Returns:
        How many there were.
    """
    found = marked_processes(stack_id)
    _signal_all(found, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while (left := marked_processes(stack_id)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    deadline = time.monotonic() + _KILL_SECONDS
    while left and time.monotonic() < deadline:  # again and again: what dies last may have started another
        _signal_all(left, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        left = marked_processes(stack_id)
    return len(found)


def marked_processes(stack_id: str) -> list[int]:
    """Processes whose environment carries the stack's mark; never ourselves."""
    mark = f"{STACK_ID_VARIABLE}={stack_id}"
    pids = _marked_in_proc(mark.encode()) if Path("/proc/self/environ").exists() else _marked_by_ps(mark)
    return [pid for pid in pids if pid != os.getpid()]


def _marked_in_proc(mark: bytes) -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            is_marked = mark in path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or belongs to someone else
        if is_marked:
            pids.append(int(path.parent.name))
    return pids


def _marked_by_ps(mark: str) -> list[int]:
    listing = subprocess.run(["ps", "axeww", "-o", "pid=,command="], capture_output=True, text=True, check=False)  # noqa: S607
    lines = (line.split(None, 1) for line in listing.stdout.splitlines() if mark in line)
    return [int(parts[0]) for parts in lines if parts[1:] and not parts[1].startswith("ps axeww")]


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody is left; macOS says EPERM when only zombies are
        os.killpg(leader, number)
