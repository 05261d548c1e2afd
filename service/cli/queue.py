"""`electra queue` and `electra quotas`: who waits and why, and how much may run."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from service.cli.console import InputError, JsonOption, UrlOption, stdout
from service.cli.inputs import open_client
from service.cli.render import moment, state_text
from service.client.queue import QuotaScope
from service.http.queue_schemas import ClusterInQueue, QueuePublic, QuotaLimits

quotas = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Quotas: how much owners and projects may run.")

OwnerOption = Annotated[str | None, typer.Option(help="Of this owner.")]
ProjectOption = Annotated[str | None, typer.Option(help="Of this project.")]


def queue(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show the queue: who waits and why, what runs, and what is free."""
    with open_client(url) as client:
        found = client.queue()
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    console = stdout()
    console.print(_cluster_line(found), markup=False, highlight=False, soft_wrap=True)
    if found.running:
        console.print(_running_table(found))
    if not found.waiting:
        typer.echo("Nothing waits.")
    else:
        console.print(_waiting_table(found))
    if len(found.owners) > 1 or found.waiting:
        console.print(_owners_table(found))


@quotas.command("list")
def list_quotas(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the quotas that count."""
    with open_client(url) as client:
        found = client.quotas()
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    table = Table("of", "name", "running jobs", "CPUs", "GPUs", "set by")
    for scope, default in (("owner", found.owner_default), ("project", found.project_default)):
        table.add_row(scope, "any other", *_limits(default), "settings")
    for one in found.items:
        table.add_row(one.scope, one.name, *_limits(one), one.set_by)
    stdout().print(table)


@quotas.command("set")
def set_quota(
    owner: OwnerOption = None,
    project: ProjectOption = None,
    jobs: Annotated[int | None, typer.Option(min=0, help="Running jobs at a time; no limit when left out.")] = None,
    cpus: Annotated[float | None, typer.Option(min=0, help="CPUs that they hold together.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs that they hold together.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give an owner or a project a quota of its own, in place of the settings'."""
    scope, name = _whose(owner, project)
    with open_client(url) as client:
        made = client.set_quota(scope, name, max_running_jobs=jobs, max_cpus=cpus, max_gpus=gpus)
    if as_json:
        typer.echo(made.model_dump_json(indent=2))
        return
    running, num_cpus, num_gpus = _limits(made)
    typer.echo(f"{made.scope} {made.name}: running jobs {running}, CPUs {num_cpus}, GPUs {num_gpus}.")


@quotas.command("remove")
def remove_quota(
    owner: OwnerOption = None, project: ProjectOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Let the settings count again."""
    scope, name = _whose(owner, project)
    with open_client(url) as client:
        client.remove_quota(scope, name)
    if as_json:
        typer.echo(json.dumps({"scope": scope, "name": name, "removed": True}))
        return
    typer.echo(f"The settings count for {name} again.")


def _whose(owner: str | None, project: str | None) -> tuple[QuotaScope, str]:
    if owner is not None and project is None:
        return "owners", owner
    if project is not None and owner is None:
        return "projects", project
    raise InputError("give either --owner or --project")


def _limits(limits: QuotaLimits) -> tuple[str, str, str]:
    values = (limits.max_running_jobs, limits.max_cpus, limits.max_gpus)
    jobs, cpus, gpus = ("any" if value is None else f"{value:g}" for value in values)
    return jobs, cpus, gpus


def _cluster_line(found: QueuePublic) -> str:
    places = f"{len(found.running)} of {found.max_running_jobs} places are taken."
    return f"{_cluster_text(found.cluster)} {places}"


def _cluster_text(cluster: ClusterInQueue) -> str:
    if not cluster.is_reachable:
        return "Ray does not answer."
    if cluster.num_cpus is None or cluster.num_gpus is None:
        return "Ray does not say what the cluster has."
    if cluster.free_cpus is None or cluster.free_gpus is None:
        return f"The cluster has {cluster.num_cpus:g} CPUs and {cluster.num_gpus:g} GPUs; what is free is not known."
    cpus = f"{cluster.free_cpus:g} of {cluster.num_cpus:g} CPUs"
    return f"{cpus} and {cluster.free_gpus:g} of {cluster.num_gpus:g} GPUs are free."


def _running_table(found: QueuePublic) -> Table:
    table = Table("running", "name", "owner", "priority", "CPUs", "GPUs", "state", "since")
    for job in found.running:
        amounts = (str(job.priority), f"{job.num_cpus:g}", f"{job.num_gpus:g}")
        table.add_row(job.job_id, job.name, job.owner, *amounts, state_text(job.state), moment(job.run_started_at))
    return table


def _waiting_table(found: QueuePublic) -> Table:
    table = Table("", "waiting", "name", "owner", "priority", "CPUs", "GPUs", "reason", "why")
    for job in found.waiting:
        waiting = job.waiting
        position = "" if waiting is None or waiting.position is None else str(waiting.position)
        reason, why = ("", "") if waiting is None else (waiting.reason.value, waiting.message)
        amounts = (str(job.priority), f"{job.num_cpus:g}", f"{job.num_gpus:g}")
        table.add_row(position, job.job_id, job.name, job.owner, *amounts, reason, why)
    return table


def _owners_table(found: QueuePublic) -> Table:
    table = Table("owner", "running jobs", "CPUs", "GPUs", "share now", "of late")
    for one in found.owners:
        quota = one.quota
        held = (
            (one.num_running_jobs, quota.max_running_jobs),
            (one.num_cpus, quota.max_cpus),
            (one.num_gpus, quota.max_gpus),
        )
        cells = [f"{value:g}" + ("" if limit is None else f" of {limit:g}") for value, limit in held]
        recent = "" if one.recent_share is None else f"{one.recent_share:.0%}"
        table.add_row(one.owner, *cells, f"{one.share:.0%}", recent)
    return table
