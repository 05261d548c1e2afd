"""`electra pause`, `resume`, `kill`, `archive`, `unarchive`: what may be wished of a job."""

from __future__ import annotations

import json

import typer

from service.cli.console import JsonOption, UrlOption
from service.cli.inputs import open_client
from service.cli.jobs import JobArgument
from service.http.schemas import JobPublic
from service.states import JobState


def pause(job: JobArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Ask a job to save a checkpoint and to make room, until it is resumed."""
    with open_client(url) as client:
        found = client.pause(job)
    is_there = found.state is JobState.PAUSED
    again = f"Go on with it:  electra resume {found.job_id}"
    _tell(found, f"is {'paused' if is_there else f'asked to pause (now {found.state})'}. {again}", as_json)


def resume(job: JobArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Put a paused job back into the queue; it goes on from its checkpoint."""
    with open_client(url) as client:
        found = client.resume(job)
    _tell(found, f"goes on when its turn comes. Watch it with:  electra show {found.job_id}", as_json)


def kill(job: JobArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """End a job at once; what it has learned since its last checkpoint is lost."""
    with open_client(url) as client:
        found = client.kill(job)
    _tell(found, f"is being ended (now {found.state}). Watch it with:  electra show {found.job_id}", as_json)


def archive(job: JobArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Leave a finished job out of lists; nothing of it is deleted."""
    with open_client(url) as client:
        found = client.archive(job)
    _tell(found, "is archived. See such jobs with:  electra jobs --archived", as_json)


def unarchive(job: JobArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show a job in lists again."""
    with open_client(url) as client:
        found = client.unarchive(job)
    _tell(found, "is in the lists again.", as_json)


def _tell(job: JobPublic, sentence: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"job_id": job.job_id, "state": job.state}))
    else:
        typer.echo(f"{job.job_id} {sentence}")
