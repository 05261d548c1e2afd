"""`electra models`: what is registered, read from MLflow's REST interface."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import typer
from rich.table import Table

from service.cli.console import InputError, JsonOption, stdout
from service.cli.inputs import running_stack
from service.client import UnreachableError

_PAGE = 200
_TIMEOUT_SECONDS = 30.0


class RegistryUnreachableError(UnreachableError):
    """MLflow does not answer, or nobody has said where it is."""

    named_by = "--mlflow-url or MLFLOW_TRACKING_URI"


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of one registered model."""

    name: str
    version: str
    aliases: tuple[str, ...]
    mlflow_run_id: str
    page: str
    """In MLflow's own interface."""


def models(
    context: typer.Context,
    mlflow_url: Annotated[
        str | None,
        typer.Option(envvar="MLFLOW_TRACKING_URI", help="Address of MLflow; that of the running stack by default."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List registered models: name, version, alias, run; with a command, what that does."""
    if context.invoked_subcommand is not None:
        return
    state = None if mlflow_url else running_stack()
    address = mlflow_url or (state.mlflow_url if state else None)
    if address is None:
        raise RegistryUnreachableError("no MLflow server is named and no stack runs here")
    if urlsplit(address).scheme not in ("http", "https"):
        raise InputError(f"the address of MLflow must start with http:// or https://, got {address!r}")
    found = list_versions(address.rstrip("/"))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    if not found:
        typer.echo("No models yet. Train one with:  electra submit tiny --follow")
        return
    table = Table()
    for column in ("name", "version", "alias", "run", "page"):
        table.add_column(column, overflow="fold")
    for one in found:
        table.add_row(one.name, one.version, ", ".join(one.aliases), one.mlflow_run_id, one.page)
    stdout().print(table)


def list_versions(mlflow_url: str) -> list[RegisteredVersion]:
    """Every version of every model, by name and newest first.

    Raises:
        RegistryUnreachableError: MLflow does not answer as it should.
    """
    is_local = urlsplit(mlflow_url).hostname in ("127.0.0.1", "localhost")
    credentials = (os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD"))
    auth = httpx.BasicAuth(credentials[0], credentials[1]) if credentials[0] and credentials[1] else None
    try:
        with httpx.Client(
            base_url=f"{mlflow_url}/api/2.0/mlflow", timeout=_TIMEOUT_SECONDS, trust_env=not is_local, auth=auth
        ) as http:
            registered = _all_pages(http, "registered-models/search", "registered_models")
            versions = _all_pages(http, "model-versions/search", "model_versions")
    except (httpx.HTTPError, ValueError) as error:
        raise RegistryUnreachableError(f"MLflow at {mlflow_url} does not answer as it should: {error}") from error
    aliases: dict[tuple[str, str], list[str]] = {}
    for model in registered:
        for alias in model.get("aliases", []):
            aliases.setdefault((model["name"], str(alias["version"])), []).append(alias["alias"])
    found = [
        RegisteredVersion(
            name=one["name"],
            version=str(one["version"]),
            aliases=tuple(aliases.get((one["name"], str(one["version"])), ())),
            mlflow_run_id=one.get("run_id") or "",
            page=f"{mlflow_url}/#/models/{one['name']}/versions/{one['version']}",
        )
        for one in versions
    ]
    return sorted(found, key=lambda one: (one.name, -int(one.version)))


def _all_pages(http: httpx.Client, path: str, key: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    token = ""
    while True:
        answer = http.get(path, params={"max_results": _PAGE, **({"page_token": token} if token else {})})
        answer.raise_for_status()
        page = answer.json()
        items += page.get(key, [])
        token = page.get("next_page_token", "")
        if not token:
            return items
