"""`electra submit`: hand a spec to the service."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.console import JsonOption, UrlOption
from service.cli.fields import (
    LabelOption,
    NoteOption,
    PriorityOption,
    RunningOption,
    SilenceOption,
    StartingOption,
    job_fields,
)
from service.cli.follow import follow_to_the_end
from service.cli.inputs import ProjectOption, SetOption, SpecArgument, open_client, read_spec_document


def submit(
    spec: SpecArgument,
    overrides: SetOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show progress until the job ends.")] = False,
    name: Annotated[str | None, typer.Option(help="What to call the job; the spec's own name by default.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Submitting twice with one key makes one job. Made up by default.")
    ] = None,
    priority: PriorityOption = None,
    label: LabelOption = None,
    note: NoteOption = None,
    starting_seconds: StartingOption = None,
    running_seconds: RunningOption = None,
    silence_seconds: SilenceOption = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a job; with --follow, watch it. The exit code is then 0 only if it succeeds."""
    document = read_spec_document(spec)
    if name is not None:
        document["name"] = name
    fields = job_fields(priority, label, note, (starting_seconds, running_seconds, silence_seconds))
    with open_client(url) as client:
        job = client.submit(document, overrides or (), idempotency_key=idempotency_key, fields=fields, project=project)
        if as_json and not follow:
            typer.echo(job.model_dump_json(indent=2, by_alias=True))
            return
        if not as_json:
            typer.echo(f"{job.job_id} is {job.state} ({job.name})")
        if not follow:
            typer.echo(f"Watch it:  electra show {job.job_id}    electra logs -f {job.job_id}")
            return
        job = follow_to_the_end(client, job.job_id, show_outcome=not as_json)
        if as_json:
            typer.echo(job.model_dump_json(indent=2, by_alias=True))
