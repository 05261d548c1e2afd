"""`electra webhooks`: addresses that are told of what happens to jobs."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from service.cli.console import JsonOption, UrlOption, stderr, stdout
from service.cli.fields import read_labels
from service.cli.inputs import ProjectOption, open_client
from service.cli.render import moment, printable
from service.feeds.records import EventType
from service.http.webhook_schemas import DEFAULT_EVENTS
from service.webhooks.records import DeliveryState

webhooks = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Webhooks: make, test, list and delete them; what was sent."
)
WebhookArgument = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id, as `electra webhooks list` has it.")]


@webhooks.command("create")
def create(
    address: Annotated[str, typer.Argument(metavar="URL", help="What is posted to: https://…")],
    events: Annotated[
        list[EventType] | None,
        typer.Option("--event", help=f"Be told of these. Repeatable.  [default: {', '.join(sorted(DEFAULT_EVENTS))}]"),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only jobs with this label. Repeatable.")
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a webhook. Its secret is printed this once and kept nowhere."""
    with open_client(url) as client:
        made = client.create_webhook(address, events=events or (), labels=read_labels(label), project=project)
    if as_json:
        typer.echo(made.model_dump_json(indent=2))
        return
    typer.echo(made.secret)
    message = f"{made.webhook_id} is made. Keep the secret now; try it with:  electra webhooks test {made.webhook_id}"
    stderr().print(message, markup=False, soft_wrap=True)


@webhooks.command("list")
def list_webhooks(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List webhooks of the projects that you administer."""
    with open_client(url) as client:
        found = client.webhooks()
    if as_json:
        typer.echo("[" + ",\n".join(one.model_dump_json() for one in found) + "]")
        return
    table = Table("webhook", "project", "url", "events", "labels", "state")
    for one in found:
        state = "works"
        if one.failing_since is not None:
            state = f"fails since {moment(one.failing_since)}"
        if one.disabled_at is not None:
            state = f"disabled {moment(one.disabled_at)}"
        labels = ", ".join(f"{key}={value}" for key, value in one.labels.items())
        table.add_row(one.webhook_id, one.project, printable(one.url), ", ".join(one.events), labels, state)
    stdout().print(table)


@webhooks.command("delete")
def delete(webhook: WebhookArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Delete a webhook, and what waits to be sent to it."""
    with open_client(url) as client:
        client.delete_webhook(webhook)
    typer.echo(json.dumps({"webhook_id": webhook, "deleted": True}) if as_json else f"{webhook} is deleted.")


@webhooks.command("enable")
def enable(webhook: WebhookArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Send again to a webhook that was disabled after failing for long."""
    with open_client(url) as client:
        found = client.enable_webhook(webhook)
    typer.echo(found.model_dump_json(indent=2) if as_json else f"{webhook} is told of what happens from now on.")


@webhooks.command("test")
def ping(webhook: WebhookArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Send a ping."""
    with open_client(url) as client:
        sent = client.test_webhook(webhook)
    again = f"See what became of it:  electra webhooks deliveries {webhook}"
    typer.echo(sent.model_dump_json(indent=2) if as_json else f"{sent.delivery_id} is on its way. {again}")


@webhooks.command("deliveries")
def deliveries(
    webhook: WebhookArgument,
    state: Annotated[DeliveryState | None, typer.Option(help="Only these.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what was sent to a webhook and what waits, newest first."""
    with open_client(url) as client:
        page = client.webhook_deliveries(webhook, state=state, limit=limit)
    if as_json:
        typer.echo(page.model_dump_json(indent=2))
        return
    table = Table("delivery", "type", "job", "state", "attempts", "last attempt", "answer", "next attempt")
    for one in page.items:
        answer = " ".join(str(part) for part in (one.status, one.error) if part is not None)
        attempts = (str(one.num_attempts), moment(one.attempted_at), answer, moment(one.due_at))
        table.add_row(one.delivery_id, one.type, one.job_id or "", one.state, *attempts)
    stdout().print(table)


@webhooks.command("redeliver")
def redeliver(
    webhook: WebhookArgument,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="As `electra webhooks deliveries` has it.")],
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a delivery once more that was given up, or that its receiver lost."""
    with open_client(url) as client:
        sent = client.redeliver(webhook, delivery)
    typer.echo(sent.model_dump_json(indent=2) if as_json else f"{sent.delivery_id} is on its way again.")
