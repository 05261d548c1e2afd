"""`electra events`: what happens to jobs, as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.console import INTERRUPTED, JsonOption, UrlOption, stderr
from service.cli.inputs import open_client
from service.cli.render import moment, printable

if TYPE_CHECKING:
    from service.client.events import FollowedEvent

_MAX_FIGURES = 4


def events(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job, to its end.")] = None,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Begin after this event; 0: from the first that is kept."),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow what happens to jobs: one line an event; with --json one JSON document a line."""
    with open_client(url) as client:
        if job is not None and after is None:
            after = 0  # of one job all of it: it may be over already
        try:
            for event in client.follow_events(job, after=after):
                typer.echo(event.model_dump_json() if as_json else event_line(event))
        except KeyboardInterrupt:
            stderr().print("\nStopped following; the jobs go on.", markup=False)
            raise typer.Exit(INTERRUPTED) from None


def event_line(event: FollowedEvent) -> str:
    """An event in one line for people."""
    if event.type == "reset":
        return f"{event.seq:>8}  earlier events are gone; `electra jobs` has the jobs as they are"
    text = printable(_told(event.type, event.payload)).replace("\n", " ")
    return f"{event.seq:>8}  {moment(event.at)}  {printable(event.job_id or '–')}  {event.type:<8}  {text}".rstrip()


def _told(kind: str, payload: dict[str, Any]) -> str:
    match kind:
        case "created":
            return f"{payload.get('kind')} {payload.get('name')}"
        case "state":
            failure = payload.get("failure")
            why = f": {failure.get('message')}" if isinstance(failure, dict) else ""
            return f"{payload.get('before')} → {payload.get('state')}, attempt {payload.get('attempt')}{why}"
        case "progress":
            step, last = payload.get("step"), payload.get("num_train_steps")
            where = f" {step}/{last}" if step is not None and last else ""
            return f"{payload.get('stage')}{where} {payload.get('message') or ''}"
        case "metrics":
            figures = {**(payload.get("losses") or {}), **(payload.get("evaluation") or {})}
            numbers = [(name, value) for name, value in figures.items() if isinstance(value, (int, float))]
            return ", ".join(f"{name} {value:.4g}" for name, value in numbers[:_MAX_FIGURES])
        case "wish":
            return f"asked to {payload.get('wish')}"
    return ""
