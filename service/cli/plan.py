"""`electra plan`: what a job will be and cost. Needs no service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from service.cli.console import JsonOption, stdout
from service.cli.inputs import SetOption, SpecArgument, read_spec_document
from service.cli.render import quantity

if TYPE_CHECKING:
    from pipelines.specs.jobs import JobSpec

SOURCES_TIMEOUT_SECONDS = 15.0


def plan(spec: SpecArgument, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Print the resolved spec, the size of both networks, FLOPs and memory. Starts nothing."""
    import yaml
    from rich.syntax import Syntax
    from rich.table import Table

    from pipelines.specs.parsing import resolve_spec
    from pipelines.specs.plans import plan_any

    resolved = resolve_spec(read_spec_document(spec), overrides or ())
    planned = plan_any(resolved, _corpus_bytes(resolved)).model_dump(mode="json")
    if as_json:
        typer.echo(json.dumps(planned, indent=2, ensure_ascii=False))
        return
    warnings = planned.pop("warnings")
    text = yaml.safe_dump(planned.pop("spec"), sort_keys=False, allow_unicode=True, width=110)
    console = stdout()
    if console.is_terminal:
        console.print(Syntax(text.rstrip(), "yaml", background_color="default"))
    else:
        typer.echo(text)
    table = Table(title="Plan", title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("how much", justify="right")
    for key, value in planned.items():
        table.add_row(key.replace("_", " "), _shown(key, value))
    console.print(table)
    for warning in warnings:
        console.print(f"Warning: {warning}", markup=False, highlight=False)


def _corpus_bytes(spec: JobSpec) -> int | None:
    """Text in the sources; a plan is made without it where they cannot be read from here."""
    from service.errors import CorpusUnreadableError
    from service.jobs.preflight import check_sources

    try:
        return check_sources(spec, SOURCES_TIMEOUT_SECONDS)
    except CorpusUnreadableError as error:
        typer.echo(f"The corpus cannot be read from here: {error.detail}", err=True)
        return None


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if "bytes" in key:
        return f"{value / 2**20:,.0f} MiB"
    return quantity(value)
