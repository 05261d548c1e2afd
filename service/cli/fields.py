"""What is said of a job beside its spec, on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from service.cli.console import InputError
from service.labels import read_label

PriorityOption = Annotated[
    int | None, typer.Option(min=-100, max=100, help="Queued jobs are taken by it, the highest first.")
]
LabelOption = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label. May be repeated.")]
NoteOption = Annotated[str | None, typer.Option(help="Something for people, up to 4000 characters.")]
StartingOption = Annotated[float | None, typer.Option(min=1, help="Longest time until its process runs.")]
RunningOption = Annotated[float | None, typer.Option(min=1, help="Longest time it runs, pauses left out.")]
SilenceOption = Annotated[float | None, typer.Option(min=1, help="Longest time without a sign of life.")]


def job_fields(
    priority: int | None,
    labels: Sequence[str] | None,
    note: str | None,
    limits: tuple[float | None, float | None, float | None] = (None, None, None),
) -> dict[str, Any]:
    """The fields of a request, of what was given.

    Raises:
        InputError: a label is none.
    """
    names = ("starting_seconds", "running_seconds", "silence_seconds")
    fields = {
        "priority": priority,
        "labels": read_labels(labels) or None,
        "notes": note,
        "limits": {name: value for name, value in zip(names, limits, strict=True) if value is not None} or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def read_labels(labels: Sequence[str] | None) -> dict[str, str]:
    """Of `key=value` each.

    Raises:
        InputError: one is no label.
    """
    try:
        return dict(map(read_label, labels or ()))
    except ValueError as error:
        raise InputError(f"--label: {error}") from error
