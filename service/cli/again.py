"""`electra retry` and `electra clone`: new jobs from old ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from service.cli.console import JsonOption, UrlOption
from service.cli.fields import LabelOption, NoteOption, PriorityOption, job_fields
from service.cli.follow import follow_to_the_end
from service.cli.inputs import SetOption, open_client
from service.cli.jobs import JobArgument
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
    """Try a failed or cancelled job again, as a new job that goes on with what the old one left: models and corpus stay
    those that were found for it.
    """
    _again("retry", job, overrides, job_fields(priority, label, note), url, follow, as_json)


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
    """Make a new job from the spec of another one, with overrides, from the start: aliases of models and sources are
    looked up anew.
    """
    _again("clone", job, overrides, job_fields(priority, label, note), url, follow, as_json)


def _again(
    verb: Literal["retry", "clone"],
    job: str,
    overrides: Sequence[str] | None,
    fields: Mapping[str, Any],
    url: str | None,
    follow: bool,
    as_json: bool,
) -> None:
    with open_client(url) as client:
        ask = client.retry if verb == "retry" else client.clone
        made = ask(job, overrides or (), fields=fields)
        if not as_json:
            typer.echo(_sentence(made, job))
            if not follow:
                typer.echo(f"Watch it:  electra show {made.job_id}    electra logs -f {made.job_id}")
        if follow:
            made = follow_to_the_end(client, made.job_id, show_outcome=not as_json)
        if as_json:
            typer.echo(made.model_dump_json(indent=2, by_alias=True))


def _sentence(made: JobPublic, job: str) -> str:
    if made.clone_of is not None:
        return f"{made.job_id} is a clone of {job}. Its models and sources are looked up anew."
    taken = {"checkpoint": "its newest checkpoint", "finished_seeds": "its finished seeds"}
    rest = f"goes on with {taken[made.goes_on_with]}" if made.goes_on_with else "starts over"
    return f"{made.job_id} tries {job} again and {rest}."
