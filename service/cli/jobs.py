"""`electra jobs`, `show`, `cancel`: what became of the jobs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from service.cli.completion import complete_job
from service.cli.console import JsonOption, UrlOption, stderr, stdout
from service.cli.fields import LabelOption, read_labels
from service.cli.inputs import open_client
from service.cli.render import current_progress, job_table, jobs_table, marked_sentence, sentence_legend
from service.cli.result_tables import result_tables
from service.cli.trial_tables import trials_table
from service.states import JobState

JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Id of the job, as `electra jobs` lists it.", autocompletion=complete_job),
]


def list_jobs(
    state: Annotated[list[JobState] | None, typer.Option(case_sensitive=False, help="Only these. Repeatable.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    label: LabelOption = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="Those that are archived, instead of the others.")
    ] = False,
    project: Annotated[str | None, typer.Option(help="Only jobs of this project.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this owner.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    labels = [f"{key}={value}" for key, value in read_labels(label).items()]
    with open_client(url) as client:
        page = client.jobs(
            state or (), name=name, limit=limit, labels=labels, archived=archived, project=project, owner=owner
        )
    if as_json:
        typer.echo(page.model_dump_json(indent=2, by_alias=True))
        return
    if not page.items:
        typer.echo("No jobs. Submit one with:  electra submit tiny --follow")
        return
    stdout().print(jobs_table(page.items))
    if page.next_cursor is not None:
        stderr().print(f"There are more than {limit}: see them with --limit or --state.", markup=False)


def show(job: JobArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show one job: state, figures, links, and its resolved spec."""
    import yaml

    with open_client(url) as client:
        found = client.job(job)
    if as_json:
        typer.echo(found.model_dump_json(indent=2, by_alias=True))
        return
    console = stdout()
    console.print(job_table(found))
    if found.failure is not None:
        told = f"{found.failure.reason}: {found.failure.code}"
        console.print(f"\nattempt {found.failure.attempt} failed ({told}):", style="red", markup=False)
        for line in (found.failure.message, *found.failure.details):
            console.print(f"  {line}", markup=False, soft_wrap=True)
    progress = current_progress(found)
    if progress is not None and progress.leaderboard:
        console.print(trials_table(progress.leaderboard, "score"))
    if found.result is not None and found.result.search is not None:
        console.print(found.result.search.verdict, markup=False)
    for table in result_tables(found.result) if found.result is not None else ():
        console.print(table)
    if found.result is not None and found.result.example:
        console.print(marked_sentence(found.result.example))
        console.print(sentence_legend(found.result.example), style="dim", markup=False)
    typer.echo("\n" + yaml.safe_dump(found.spec, sort_keys=False, allow_unicode=True, width=110).rstrip())


def cancel(job: JobArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Ask a job to stop; it keeps its last checkpoint."""
    with open_client(url) as client:
        found = client.cancel(job)
    if as_json:
        typer.echo(json.dumps({"job_id": found.job_id, "state": found.state}))
        return
    if found.state is JobState.CANCELLED:
        typer.echo(f"{found.job_id} is cancelled.")
    else:
        typer.echo(f"{found.job_id} is asked to stop (now {found.state}). Watch it with:  electra show {found.job_id}")
