"""`electra logs`: what a job printed, and what its processes logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich.table import Table

from pipelines.specs.log_lines import DRIVER_OUTPUT, LEVELS
from service.cli.console import INTERRUPTED, InputError, JsonOption, UrlOption, stderr, stdout
from service.cli.inputs import open_client
from service.cli.jobs import JobArgument
from service.client import ElectraClient
from service.http.log_schemas import LogRecord
from service.joblogs.lines import render_line

_LINES_A_PAGE = 1000


def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="The last one by default.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="A process, such as driver, rank-0 or 'seed-*'; '*' for all. Repeatable."),
    ] = None,
    level: Annotated[str | None, typer.Option(help=f"This level and those above: {', '.join(LEVELS)}.")] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only lines with this text, in upper or lower case.")
    ] = None,
    sources: Annotated[bool, typer.Option("--sources", help="List the processes that have kept a log.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what a job has written; with --source, --level, --grep or --json what its processes logged."""
    if level is not None and level not in LEVELS:
        raise InputError(f"--level must be one of {', '.join(LEVELS)}, got {level!r}")
    is_search = any(value is not None for value in (level, grep)) or as_json
    if DRIVER_OUTPUT in (source or ()) and (len(source or ()) > 1 or is_search):
        raise InputError(f"--source {DRIVER_OUTPUT} is plain text: it goes with -f and --attempt only")
    if sources and (follow or source or level or grep):
        raise InputError("--sources goes with --attempt and --json only")
    with open_client(url) as client:
        if sources:
            _list(client, job, attempt, as_json)
            return
        is_printed = not is_search and (not source or source == [DRIVER_OUTPUT])
        if is_printed and not follow:
            typer.echo(client.logs(job, attempt=attempt), nl=False)
            return
        lines: Iterable[str]
        if is_printed:
            lines = (line.text for line in client.follow_logs(job, attempt=attempt))
        else:
            asked = source or ["*"]
            if follow:
                found = client.follow_log_records(job, attempt=attempt, sources=asked, level=level, contains=grep)
            else:
                found = _records(client, job, attempt, asked, level, grep)
            lines = (record.model_dump_json() if as_json else render_line(record) for record in found)
        try:
            for line in lines:
                typer.echo(line)
        except KeyboardInterrupt:
            if follow:
                stderr().print(f"\nStopped following; the job goes on. Again:  electra logs -f {job}", markup=False)
            raise typer.Exit(INTERRUPTED) from None


def _records(
    client: ElectraClient, job: str, attempt: int | None, sources: list[str], level: str | None, grep: str | None
) -> Iterator[LogRecord]:
    cursor = None
    while True:
        page = client.log_page(
            job, attempt=attempt, sources=sources, level=level, contains=grep, limit=_LINES_A_PAGE, cursor=cursor
        )
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _list(client: ElectraClient, job: str, attempt: int | None, as_json: bool) -> None:
    found = client.log_sources(job, attempt=attempt)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    if not found.items:
        typer.echo(f"No process of attempt {found.attempt} has kept a log. What was printed:  electra logs {job}")
        return
    table = Table("source", "first line (UTC)", "kept", title=f"attempt {found.attempt}", title_justify="left")
    for one in found.items:
        started = "" if one.started_at is None else f"{one.started_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(one.source, started, f"{one.size_bytes / 1000:,.1f} kB")
    stdout().print(table)
