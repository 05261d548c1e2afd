"""`electra trials`: what a search has tried."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from service.cli.console import JsonOption, UrlOption, stderr, stdout
from service.cli.inputs import open_client
from service.cli.jobs import JobArgument
from service.cli.trial_tables import trials_table

MOST_A_PAGE = 500


class Sort(StrEnum):
    """By what trials are listed."""

    RANK = "rank"
    SCORE = "score"
    NUMBER = "number"
    FLOPS = "flops"
    STEP = "step"


def trials(
    job: JobArgument,
    sort: Annotated[Sort, typer.Option(help="By what; ranks and scores the best first.")] = Sort.RANK,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    final: Annotated[bool | None, typer.Option(help="Only trials of the final round, or only the others.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the trials of a search."""
    with open_client(url) as client:
        page = client.trials(job, sort=sort.value, is_final=final, limit=min(limit, MOST_A_PAGE))
        items = list(page.items)
        while page.next_cursor is not None and len(items) < limit:
            count = min(limit - len(items), MOST_A_PAGE)
            page = client.trials(job, sort=sort.value, is_final=final, limit=count, cursor=page.next_cursor)
            items += page.items
    page = page.model_copy(update={"items": tuple(items)})
    if as_json:
        typer.echo(page.model_dump_json(indent=2))
        return
    if not page.items:
        typer.echo("No trial has begun yet.")
        return
    stdout().print(trials_table(page.items, page.metric or "score"))
    if page.next_cursor is not None:
        stderr().print(f"There are {page.total} trials: see more with --limit.", markup=False)
