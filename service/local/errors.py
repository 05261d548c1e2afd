"""Why the embedded stack does not run.

StackError
├── AlreadyRunningError
├── PortInUseError
└── ComponentFailedError
"""

from __future__ import annotations

from pathlib import Path


class StackError(Exception):
    """The stack cannot start or has stopped; the message says what to do."""


class AlreadyRunningError(StackError):
    """Another stack runs with the same home."""

    def __init__(self, home: Path, service_url: str | None) -> None:
        where = f" at {service_url}" if service_url else ""
        super().__init__(
            f"a stack already runs with {home}{where}; use that one, or start another with --home and another folder"
        )


class PortInUseError(StackError):
    """A port that was asked for belongs to another program."""

    def __init__(self, port: int, title: str, option: str) -> None:
        self.port = port
        super().__init__(
            f"port {port} for {title} is in use on 127.0.0.1; stop what uses it, "
            f"give another one with {option}, or leave {option} out for a free one"
        )


class ComponentFailedError(StackError):
    """A component stopped by itself or did not become ready in time."""

    def __init__(self, message: str, log_path: Path, log_end: str) -> None:
        self.log_path = log_path
        shown = "\n".join(f"  {line}" for line in log_end.splitlines()) or "  (nothing)"
        super().__init__(f"{message}\nEnd of {log_path}:\n{shown}")
