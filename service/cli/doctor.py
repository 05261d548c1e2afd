"""`electra doctor`: this machine and what it speaks with, looked over."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from service.cli.console import FAILED, JsonOption, UrlOption, stdout
from service.cli.inputs import running_stack
from service.local import default_home

if TYPE_CHECKING:
    from service.doctor.reachable import Places

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Look over this machine and what it speaks with; each row says what to do. Exit code 1 where one failed."""
    from service.doctor import installed, reachable
    from service.doctor.findings import Status, look_over

    places = _places(url)
    found = look_over(
        [
            ("python", installed.check_python),
            ("packages", installed.check_packages),
            ("machine", installed.check_machine),
            ("storage", partial(reachable.check_storage, places)),
            ("database", partial(reachable.check_database, places)),
            ("ray", partial(reachable.check_ray, places)),
            ("mlflow", partial(reachable.check_mlflow, places)),
            ("service", partial(reachable.check_service, places)),
        ]
    )
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
    else:
        table = Table("", "what", "how it is", "what to do")
        for one in found:
            status = f"[{_COLOURS[one.status]}]{one.status}[/]"
            table.add_row(status, one.name, _escaped(one.detail), _escaped(one.advice))
        stdout().print(table)
    if any(one.status is Status.FAIL for one in found):
        raise typer.Exit(FAILED)


def _places(url: str | None) -> Places:
    """Those of the stack that runs here, or else of the environment."""
    from service.doctor.reachable import Places

    state, environment, home = running_stack(), os.environ, default_home()
    service_url = url or (state.service_url if state else None)
    storage_uri = environment.get("ELECTRA_STORAGE_URI") or str(home / "storage")
    if state is None:
        return Places(
            service_url=service_url and service_url.rstrip("/"),
            ray_url=environment.get("ELECTRA_RAY_ADDRESS"),
            mlflow_url=environment.get("ELECTRA_MLFLOW_TRACKING_URI") or environment.get("ELECTRA_MLFLOW_URL"),
            storage_uri=storage_uri,
            database_url=environment.get("ELECTRA_DATABASE_URL"),
            ray_token=environment.get("ELECTRA_RAY_TOKEN") or _read(environment.get("ELECTRA_RAY_TOKEN_PATH")),
        )
    return Places(
        service_url=service_url and service_url.rstrip("/"),
        ray_url=state.ray_url,
        mlflow_url=state.mlflow_url,
        storage_uri=state.storage_uri,
        database_url=environment.get("ELECTRA_DATABASE_URL") or f"sqlite:///{home / 'service.sqlite'}",
        ray_token=_read(state.ray_token_path),
    )


def _read(path: str | None) -> str | None:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip() if path else None
    except OSError:
        return None  # Ray will say that a token is missing


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
