"""`electra trials`: what a search has tried."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from service.cli.console import JsonOption, UrlOption, stderr, stdout
from service.cli.inputs import open_client
from service.cli.jobs import JobArgument
from service.cli.trial_tables import trials_table


class Sort(StrEnum):
    """By what trials are listed."""

    SCORE = "score"
    NUMBER = "number"
    FLOPS = "flops"
    STEP = "step"


def trials(
    job: JobArgument,
    sort: Annotated[Sort, typer.Option(help="By what; scores the best first.")] = Sort.SCORE,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at most.")] = 50,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the trials of a search."""
    with open_client(url) as client:
        page = client.trials(job, sort=sort.value, limit=limit)
    if as_json:
        typer.echo(page.model_dump_json(indent=2))
        return
    if not page.items:
        typer.echo("No trial has begun yet.")
        return
    stdout().print(trials_table(page.items, page.metric or "score"))
    if page.next_cursor is not None:
        stderr().print(f"There are {page.total} trials: see more with --limit.", markup=False)
