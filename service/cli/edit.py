"""`electra edit`: what people say of a job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.console import InputError, JsonOption, UrlOption
from service.cli.fields import LabelOption, NoteOption, PriorityOption, read_labels
from service.cli.inputs import open_client
from service.cli.jobs import JobArgument


def edit(
    job: JobArgument,
    priority: PriorityOption = None,
    label: LabelOption = None,
    remove_label: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A label to take away. May be repeated.")
    ] = None,
    note: NoteOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a job's priority, labels or note. An empty note takes it away."""
    fields: dict[str, Any] = {"priority": priority, "notes": note}
    fields = {name: value for name, value in fields.items() if value is not None}
    added, removed = read_labels(label), set(remove_label or ())
    if not (fields or added or removed):
        raise InputError("give something to change: --priority, --label, --remove-label or --note")
    with open_client(url) as client:
        if added or removed:
            labels = client.job(job).labels
            fields["labels"] = {key: value for key, value in labels.items() if key not in removed} | added
        found = client.edit(job, fields)
    if as_json:
        typer.echo(found.model_dump_json(indent=2, by_alias=True))
        return
    labels_text = " ".join(f"{key}={value}" for key, value in found.labels.items()) or "no labels"
    typer.echo(f"{found.job_id}: priority {found.priority}, {labels_text}")
