"""`electra corpora`, `electra clean` and `electra usage`."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from service.cli.console import FAILED, InputError, JsonOption, UrlOption, stderr, stdout
from service.cli.inputs import open_client
from service.cli.render import moment, quantity

DIGEST_SHOWN = 16


class GroupBy(StrEnum):
    """What rows of usage are told apart by."""

    OWNER = "owner"
    PROJECT = "project"
    KIND = "kind"
    DAY = "day"


def corpora(
    digest: Annotated[str | None, typer.Argument(metavar="[DIGEST]", help="One alone, whole, with its jobs.")] = None,
    project: Annotated[str | None, typer.Option(help="Used by jobs of this project.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List prepared corpora: size, last use, jobs."""
    with open_client(url) as client:
        if digest is not None:
            typer.echo(client.corpus(digest).model_dump_json(indent=2))
            return
        page = client.corpora(project=project, limit=100)
        items = list(page.items)
        while page.next_cursor is not None:
            page = client.corpora(project=project, limit=100, cursor=page.next_cursor)
            items += page.items
    if as_json:
        typer.echo("[" + ",\n".join(one.model_dump_json() for one in items) + "]")
        return
    table = Table("digest", "size", "tokens", "documents", "created", "last used", "jobs")
    for one in items:
        table.add_row(
            one.digest if len(items) == 1 else f"{one.digest[:DIGEST_SHOWN]}…",
            size_text(one.size_bytes),
            quantity(one.num_tokens),
            quantity(one.num_documents),
            moment(one.created_at),
            moment(one.last_used_at),
            ", ".join(use.job_id for use in one.jobs[:3]) + (" …" if len(one.jobs) > 3 else ""),
        )
    stdout().print(table)


def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--delete", help="Say what would be deleted, or delete it.")
    ] = True,
    corpora_days: Annotated[
        float | None, typer.Option(min=0, help="Corpora go that no job used for so many days.  [default: 30]")
    ] = None,
    keep_checkpoints: Annotated[
        int | None, typer.Option(min=0, help="Newest checkpoints that stay of each finished job.  [default: 1]")
    ] = None,
    archived_days: Annotated[
        float | None, typer.Option(min=0, help="Folders of archived jobs go that ended so many days ago.")
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="Apply no rule but those given here.")] = False,
    show_kept: Annotated[bool, typer.Option("--kept", help="Show what stays too, and why.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete corpora, checkpoints and folders that nobody needs; a dry run unless --delete is given."""
    rules = {
        "unused_corpora_days": corpora_days,
        "checkpoints_to_keep": keep_checkpoints,
        "archived_jobs_days": archived_days,
    }
    given: dict[str, Any] = {name: value for name, value in rules.items() if value is not None or only}
    with open_client(url) as client:
        answer = client.clean({"dry_run": dry_run, **given})
    if as_json:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        table = Table("what", "size", "outcome", "why")
        for item in answer.items:
            if show_kept or item.outcome != "kept":
                table.add_row(item.path, size_text(item.size_bytes), item.outcome.replace("_", " "), item.reason)
        stdout().print(table)
        verb = "would be deleted" if answer.dry_run else "deleted"
        typer.echo(f"{answer.num_deleted} {verb}, {size_text(answer.deleted_bytes)}; {answer.num_kept} stay.")
        if answer.dry_run and answer.num_deleted:
            stderr().print("Nothing was deleted. To do it, add --delete.", markup=False)
    if answer.num_failed:
        raise typer.Exit(FAILED)


def usage(
    start: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="First day, such as 2026-01-01; 30 days ago by default.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="The day after the last; now by default.")
    ] = None,
    group_by: Annotated[list[GroupBy] | None, typer.Option("--by", help="What to tell apart. May be repeated.")] = None,
    project: Annotated[str | None, typer.Option(help="Of this project alone.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for spreadsheets.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what jobs took of the cluster: CPU-hours, GPU-hours, FLOPs, tokens."""
    by = [one.value for one in group_by or [GroupBy.PROJECT, GroupBy.OWNER]]
    window = {"start": _when("--from", start), "end": _when("--to", end)}
    with open_client(url) as client:
        if as_csv:
            typer.echo(client.usage_csv(**window, group_by=by, project=project), nl=False)
            return
        report = client.usage(**window, group_by=by, project=project)
    if as_json:
        typer.echo(report.model_dump_json(indent=2, by_alias=True))
        return
    table = Table(title=f"{report.from_:%Y-%m-%d %H:%M} to {report.to:%Y-%m-%d %H:%M} UTC", title_justify="left")
    for name in (*by, "CPU hours", "GPU hours", "FLOPs", "tokens", "jobs", "attempts"):
        table.add_column(name, justify="left" if name in by else "right")
    for row in (*report.rows, report.total):
        names = [row.group.get(name, "all" if index == 0 else "") for index, name in enumerate(by)]
        figures = [f"{row.cpu_hours:.2f}", f"{row.gpu_hours:.2f}", f"{row.flops:.3g}", quantity(round(row.tokens))]
        table.add_row(*names, *figures, str(row.jobs), str(row.attempts), style="bold" if row is report.total else None)
    stdout().print(table)


def size_text(size_bytes: int) -> str:
    """Bytes in the largest unit of which there is one."""
    size, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"


def _when(option: str, given: str | None) -> datetime | date | None:
    if given is None:
        return None
    try:
        return date.fromisoformat(given) if len(given) == len("2026-01-01") else _aware(datetime.fromisoformat(given))
    except ValueError as error:
        raise InputError(f"{option} must be a day or a moment such as 2026-01-01T12:00Z, got {given!r}") from error


def _aware(at: datetime) -> datetime:
    return at.astimezone() if at.tzinfo is None else at
