"""What is found when a machine is looked over: rows, each with what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How it is."""

    OK = "ok"
    WARN = "warn"
    """It works, or will for some; look at it."""
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One row."""

    name: str
    """What was looked at."""
    status: Status
    detail: str
    advice: str = ""
    """What to do; empty where there is nothing to be done."""


Check = Callable[[], Iterable[Finding]]


def look_over(checks: Iterable[tuple[str, Check]]) -> list[Finding]:
    """All rows. A check that breaks is a row too: it must not hide the others."""
    found: list[Finding] = []
    for name, check in checks:
        try:
            found += check()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the machine
            detail = f"could not be looked at: {type(error).__name__}: {error}"
            found.append(Finding(name, Status.FAIL, detail, "Please report this, with what stands here."))
    return found
