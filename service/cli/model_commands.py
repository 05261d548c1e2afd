"""`electra models list|show|promote|lineage|download`: registered models, over the service."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.tree import Tree

from service.cli.console import InputError, JsonOption, UrlOption, stdout
from service.cli.inputs import open_client
from service.cli.render import moment, printable, quantity
from service.cli.shelf import size_text
from service.http.model_schemas import ModelLineage, ModelPublic

NameArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Of the registered model.")]
VersionArgument = Annotated[
    str, typer.Argument(metavar="MODEL[@VERSION]", help="A model, and after @ a version or alias; newest by default.")
]


def list_models(
    project: Annotated[str | None, typer.Option(help="Of this project alone.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List registered models with their aliases."""
    with open_client(url) as client:
        found = list(client.iter_models(project=project))
    if as_json:
        typer.echo("[" + ",\n".join(one.model_dump_json() for one in found) + "]")
        return
    table = Table("model", "project", "aliases", "updated")
    for one in found:
        table.add_row(one.name, one.project, _aliases(one), moment(one.updated_at))
    stdout().print(table)


def show(
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Versions at most.")] = 20,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a model and its versions, newest first."""
    with open_client(url) as client:
        model, page = client.model(name), client.versions(name, limit=limit)
    if as_json:
        typer.echo(f'{{"model": {model.model_dump_json()},\n"versions": {page.model_dump_json()}}}')
        return
    named: dict[int, list[str]] = {}
    for alias, version in model.aliases.items():
        named.setdefault(version, []).append(alias)
    table = Table("version", "aliases", "network", "job", "created", title=model.name, title_justify="left")
    for one in page.items:
        aliases = ", ".join(named.get(one.version, []))
        table.add_row(str(one.version), aliases, one.network or "", one.job_id or "", moment(one.created_at))
    stdout().print(table)


def promote(
    name: NameArgument,
    alias: Annotated[str, typer.Argument(help="Such as champion.")],
    version: Annotated[int, typer.Argument(min=1, help="That it names from now on.")],
    expected: Annotated[
        int | None, typer.Option(min=0, help="Only if it names this version until now; 0: only if there is none.")
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let an alias name a version."""
    with open_client(url) as client:
        moved = client.move_alias(name, alias, version, expected_version=expected)
    if as_json:
        typer.echo(moved.model_dump_json(indent=2))
        return
    before = f"version {moved.before}" if moved.before else "nothing"
    typer.echo(f"{name}@{alias} names version {moved.after} now; {before} before.")


def lineage(model: VersionArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show what a version was made of."""
    name, version = _split(model)
    with open_client(url) as client:
        found = client.lineage(name, version)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    stdout().print(_tree(found))


def download(
    model: VersionArgument,
    folder: Annotated[Path, typer.Option("--to", help="Where the folder of the export is put.")] = Path(),
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download the export of a version and unpack it."""
    name, version = _split(model)
    if not folder.is_dir():
        raise InputError(f"--to must be a folder that is there, got {str(folder)!r}")
    with open_client(url) as client:
        found = client.version(name, version)
        archive = folder / f".{found.name}-{found.version}.tar.part"
        target = folder / f"{found.name}-{found.version}"
        if target.exists():
            raise InputError(f"{target} is there already")
        try:
            with archive.open("wb") as file:
                size = client.download_export(name, str(found.version), file)
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        finally:
            archive.unlink(missing_ok=True)
    if as_json:
        typer.echo(json.dumps({"folder": str(target), "size_bytes": size}))
        return
    typer.echo(f"{target}  {size_text(size)}")


def _split(model: str) -> tuple[str, str]:
    name, _, version = model.partition("@")
    return name, version or "newest"


def _aliases(model: ModelPublic) -> str:
    return ", ".join(f"{alias} → {version}" for alias, version in model.aliases.items())


def _tree(found: ModelLineage) -> Tree:
    tree = Tree(f"{found.name} version {found.version}" + (f", {found.network}" if found.network else ""))
    if found.mlflow_run_id:
        tree.add(f"MLflow run {found.mlflow_run_id}")
    if found.job is not None:
        job = tree.add(f"job {found.job.job_id}  {found.job.kind}, {found.job.owner} in {found.job.project}")
        for attempt in found.job.attempts:
            job.add(f"attempt {attempt.attempt}: {moment(attempt.started_at)} to {moment(attempt.ended_at)}")
    if found.corpus is not None:
        corpus = tree.add(f"corpus {found.corpus.digest}" + ("" if found.corpus.is_stored else "  (deleted)"))
        for source in found.corpus.sources:
            corpus.add(printable(_source_text(source)))
    for parent in found.parents:
        if parent.lineage is not None:
            tree.add(_tree(parent.lineage))
        else:
            tree.add(printable(parent.uri or f"{parent.name} version {parent.version or 'unknown'}"))
    return tree


def _source_text(source: dict[str, object]) -> str:
    words = source.get("words")
    places = (words.get("uris") or words.get("packages") or "") if isinstance(words, dict) else ""
    text = f"{source.get('type')}  {places}"
    size, files = source.get("size_bytes"), source.get("num_files")
    if isinstance(size, int) and isinstance(files, int):
        text += f"  {quantity(files)} files, {size_text(size)}, sha256 {str(source.get('files_sha256'))[:16]}…"
    return text
