"""`electra retry` and `electra clone`: new jobs from old ones."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.console import JsonOption, UrlOption
from service.cli.fields import LabelOption, NoteOption, PriorityOption, job_fields
from service.cli.follow import follow_to_the_end
from service.cli.inputs import SetOption, open_client
from service.cli.jobs import JobArgument
from service.client import ElectraClient
from service.http.schemas import JobPublic

FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Show progress until the new job ends.")]


def retry(
    job: JobArgument,
    overrides: SetOption = None,
    follow: FollowOption = False,
    priority: PriorityOption = None,
    label: LabelOption = None,
    note: NoteOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try a failed or cancelled job again, as a new job that goes on with what the old one left."""
    fields = job_fields(priority, label, note)
    with open_client(url) as client:
        made = client.retry(job, overrides or (), fields=fields)
        taken = {"checkpoint": "its newest checkpoint", "finished_seeds": "its finished seeds"}
        rest = f"goes on with {taken[made.goes_on_with]}" if made.goes_on_with else "starts over"
        _tell(client, made, f"{made.job_id} tries {job} again and {rest}.", follow, as_json)


def clone(
    job: JobArgument,
    overrides: SetOption = None,
    follow: FollowOption = False,
    priority: PriorityOption = None,
    label: LabelOption = None,
    note: NoteOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new job from the spec of another one, with overrides, from the start."""
    fields = job_fields(priority, label, note)
    with open_client(url) as client:
        made = client.clone(job, overrides or (), fields=fields)
        _tell(client, made, f"{made.job_id} is a clone of {job}.", follow, as_json)


def _tell(client: ElectraClient, made: JobPublic, sentence: str, follow: bool, as_json: bool) -> None:
    if not as_json:
        typer.echo(sentence)
        if not follow:
            typer.echo(f"Watch it:  electra show {made.job_id}    electra logs -f {made.job_id}")
    if follow:
        made = follow_to_the_end(client, made.job_id, show_outcome=not as_json)
    if as_json:
        typer.echo(made.model_dump_json(indent=2, by_alias=True))
