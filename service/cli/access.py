"""`electra keys`, `electra projects` and `electra audit`: who may do what, and who did."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Table

from service.access.principals import ALL_PROJECTS, ALL_SCOPES, Permission, Role
from service.cli.console import InputError, JsonOption, UrlOption, stderr, stdout
from service.cli.inputs import open_client
from service.http.access_schemas import DEFAULT_LIFETIME_DAYS, MAX_LIFETIME_DAYS, KeyCreate

keys = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="API keys: make, list and revoke them.")
projects = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Projects: what jobs, models and keys belong to."
)


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What the key is for, such as 'nightly runs'.")],
    owner: Annotated[str, typer.Option(help="Whose jobs are made with it.")],
    project: Annotated[
        str | None, typer.Option(help="Where it counts; '*' for all projects.  [default: default]")
    ] = None,
    role: Annotated[Role | None, typer.Option(help="In the project.  [default: member]")] = None,
    scopes: Annotated[
        list[Permission] | None, typer.Option("--scope", help="No more than these; all by default.")
    ] = None,
    days: Annotated[
        int, typer.Option(min=0, max=MAX_LIFETIME_DAYS, help="Until it expires; 0 for never.")
    ] = DEFAULT_LIFETIME_DAYS,
    bootstrap: Annotated[
        bool,
        typer.Option(
            "--bootstrap",
            help="Make it in the database of the ELECTRA_* settings rather than over the service: the first key. An "
            "administrator's of all projects, unless said otherwise.",
        ),
    ] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key. It is printed this once and kept nowhere."""
    project = project or (ALL_PROJECTS if bootstrap else "default")
    role = role or (Role.ADMIN if bootstrap else Role.MEMBER)
    try:
        asked = KeyCreate(
            name=name,
            owner=owner,
            project=None if project == ALL_PROJECTS else project,
            role=role,
            scopes=frozenset(scopes) if scopes else ALL_SCOPES,
            lifetime_days=days or None,
        )
    except ValidationError as error:
        fault = error.errors()[0]
        raise InputError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}, got {fault['input']!r}") from error
    if bootstrap:
        from service.cli.bootstrap import make_key_in_database

        made = make_key_in_database(asked)
    else:
        with open_client(url) as client:
            made = client.create_key(
                asked.name,
                asked.owner,
                project=asked.project,
                role=asked.role,
                scopes=tuple(asked.scopes),
                lifetime_days=asked.lifetime_days,
            )
    if as_json:
        typer.echo(made.model_dump_json(indent=2))
        return
    typer.echo(made.key)
    message = f"Keep it now: it is shown only this once. Revoke it with:  electra keys revoke {made.key_id}"
    stderr().print(message, markup=False, soft_wrap=True)


@keys.command("list")
def list_keys(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List keys of the projects that you administer."""
    with open_client(url) as client:
        found = client.keys()
    if as_json:
        typer.echo("[" + ",\n".join(key.model_dump_json() for key in found) + "]")
        return
    table = Table("key", "name", "owner", "project", "role", "expires", "last used", "state")
    for key in found:
        is_over = key.expires_at is not None and key.expires_at <= datetime.now(UTC)
        state = "revoked" if key.revoked_at else "expired" if is_over else "valid"
        expires = "never" if key.expires_at is None else f"{key.expires_at:%Y-%m-%d}"
        used = "never" if key.last_used_at is None else f"{key.last_used_at:%Y-%m-%d %H:%M}"
        table.add_row(key.key_id, key.name, key.owner, key.project or ALL_PROJECTS, key.role, expires, used, state)
    stdout().print(table)


@keys.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="KEY")], url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Make a key worthless, at once."""
    with open_client(url) as client:
        found = client.revoke_key(key_id)
    typer.echo(found.model_dump_json(indent=2) if as_json else f"{found.key_id} ({found.name}) is revoked.")


@projects.command("create")
def create_project(name: Annotated[str, typer.Argument()], url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Make a project."""
    with open_client(url) as client:
        made = client.create_project(name)
    typer.echo(made.model_dump_json(indent=2) if as_json else f"Project {made.name} is made.")


@projects.command("list")
def list_projects(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the projects that you see, and what you may do there."""
    with open_client(url) as client:
        found = client.projects()
    if as_json:
        typer.echo("[" + ",\n".join(one.model_dump_json() for one in found) + "]")
        return
    table = Table("project", "you may")
    for one in found:
        table.add_row(one.name, ", ".join(one.permissions))
    stdout().print(table)


def audit(
    principal: Annotated[str | None, typer.Option(help="Who.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Such as job.create, or authenticate for those that failed.")
    ] = None,
    object_: Annotated[str | None, typer.Option("--object", help="A job, a key or a project.")] = None,
    project: Annotated[str | None, typer.Option(help="Of this project alone.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at most.")] = 50,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what was changed and refused, newest first."""
    with open_client(url) as client:
        page = client.audit(limit=limit, principal=principal, action=action, object=object_, project=project)
    if as_json:
        typer.echo(page.model_dump_json(indent=2))
        return
    table = Table("when (UTC)", "who", "what", "object", "project", "outcome", "from")
    for item in page.items:
        when = f"{item.at:%Y-%m-%d %H:%M:%S}"
        table.add_row(when, item.principal, item.action, item.object, item.project or "", item.outcome, item.address)
    stdout().print(table)
